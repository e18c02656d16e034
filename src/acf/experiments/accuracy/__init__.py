"""How accurate each method trains: dense, block-sparse, N:M and with sparse gradients, on real images, several seeds."""
