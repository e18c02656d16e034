"""How accurately each method trains on real images: dense, block-sparse, N:M and with sparse gradients."""
