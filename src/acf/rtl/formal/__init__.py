"""Proofs about the units: a component whose output ``holds`` must be 1 in every cycle, whatever its inputs do."""
