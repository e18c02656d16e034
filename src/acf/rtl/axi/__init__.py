"""AXI4: bursts of reads and writes that keep the rules of the bus, and one master for many askers."""
