"""AXI4 and AXI4-Lite: signatures of the buses, and burst masters for reads and writes."""
