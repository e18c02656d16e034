"""Speed of the block-sparse kernels on this machine, as ratios to the dense libraries in the same run."""
