"""How the compiled kernels configure tile registers (AMX), by their machine code."""

import ctypes
import struct

import pytest

from tests.ops.cpu.layers import needs_compiler
from tests.ops.cpu.software import trap_tiles, trapped_in_software

pytestmark = needs_compiler


@pytest.mark.parametrize("pairs", [8, 16])
def test_the_shapes_of_tiles_are_in_memory_when_they_are_configured(pairs: int) -> None:
    trapped_in_software()  # skips where nothing is trapped
    trap_tiles().configure_tiles(pairs)
    configuration = ctypes.create_string_buffer(64)
    trap_tiles().read_configuration(configuration)
    palette, *sizes = struct.unpack("B15x16H16B", configuration.raw)
    assert palette == 1
    assert sizes[:16] == [64] * 4 + [4 * pairs] * 2 + [64] * 2 + [0] * 8
    assert sizes[16:] == [16] * 6 + [pairs] * 2 + [0] * 8
