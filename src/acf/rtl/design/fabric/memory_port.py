"""A controller's port to the memory behind it, as a signature."""

from amaranth.lib.wiring import In, Out, Signature
from amaranth.utils import bits_for

from acf.rtl.design.fabric.sizes import FabricSizes


def memory_port(sizes: FabricSizes) -> Signature:
    """Requests for packets and their flits, both in order, seen from the controller; there is no back-pressure.

    ``ask`` requests the packet of ``flits`` flits at flit ``address``; with ``transposed``, the transpose of the dense
    tile there. Each flit comes with ``valid`` in ``data``, the
    first one with ``first``. With it ``late`` tells that the packet waited behind another one's flits, ``outside`` that
    it came from outside the chip; counters attribute stalls by them.
    """
    return Signature(
        {
            "ask": Out(1),
            "address": Out(bits_for(sizes.memory_flits - 1)),
            "flits": Out(bits_for(sizes.tile_flits)),
            "transposed": Out(1),
            "valid": In(1),
            "first": In(1),
            "late": In(1),
            "outside": In(1),
            "data": In(sizes.flit_bits),
        }
    )
