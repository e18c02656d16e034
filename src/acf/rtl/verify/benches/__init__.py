"""Components with memories behind their ports, so that a program runs without a test bench that reacts."""
