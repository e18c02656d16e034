"""The simulator's stepped engine and the gates run the same program; events, counters and outputs must be equal."""
