"""What becomes gates: Amaranth components, each with a cycle-level model of it in plain Python beside it."""
