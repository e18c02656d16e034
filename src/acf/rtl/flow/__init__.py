"""From an Amaranth component to Verilog, a compiled model and a synthesised netlist."""
