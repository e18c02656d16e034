"""Evidence that the design is right: lockstep with the simulator, formal proofs, and the benches for both."""
