"""Shares of zeros, measured layer by layer in captured steps of trained networks."""
