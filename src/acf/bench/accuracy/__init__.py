"""Accuracy of each method on real images: dense, block-sparse, N:M and sparse-gradient training."""
