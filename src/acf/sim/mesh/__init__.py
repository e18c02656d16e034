"""The mesh: packets between endpoints, routing tables, and what long flows reach."""
