"""The fabric in gates: what `docs/fabric.md` describes, parametrised by the simulator's `FabricShape`."""
