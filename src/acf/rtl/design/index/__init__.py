"""Index units of sparse formats: walkers over block-CSR and relative CSC, and the prefix sum behind row offsets."""
