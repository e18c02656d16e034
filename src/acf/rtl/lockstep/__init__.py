"""One program on the model and on the fabric in gates, event by event and bit by bit."""
