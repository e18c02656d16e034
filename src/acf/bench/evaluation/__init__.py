"""ResNet-50 and Transformer-Base by one protocol: systems, sparsities and seeds, measured and simulated."""
