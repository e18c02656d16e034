"""The vector unit: normalisation, activations, residual additions and optimizer updates beside the products."""
