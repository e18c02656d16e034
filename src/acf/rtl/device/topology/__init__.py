"""Topology updates on the device: scores of blocks, selection, and the index written anew."""
