"""The fabric as a device on two buses, AXI4-Lite for registers and AXI4 for memory, and the host's side of it."""
