"""A network over whole epochs, with a step captured and simulated on the way."""
