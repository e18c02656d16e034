"""Reports about a design: FPGA resources, area, power, and both beside the simulator's cost figures."""
