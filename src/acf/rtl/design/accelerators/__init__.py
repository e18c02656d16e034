"""Units of published accelerators: TensorDash's scheduler, SORE's sorter, SparTANN's dynamic thresholds (DTS)."""
