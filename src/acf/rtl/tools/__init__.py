"""From an Amaranth component to Verilog, a compiled model, mapped netlists and reports about them."""
