"""What an SCU and its port switch while the cluster around them computes."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.tools.verilator import VerilatorUnavailableError
from acf.rtl.verify.fabric_power import measure_scu_power
from acf.rtl.verify.lockstep.products import Product
from tests.rtl.verify.conftest import HOLDING_SCU

SMALLEST_SCU = replace(HOLDING_SCU, parallel_slots=2, accumulator_tiles=1, queue_packets=1, prefetch_packets=1)
"""Compiling all gates of a port takes most of the time, and their number grows with its places for tiles."""


def test_an_scu_is_weighed_with_its_port_and_without_its_arithmetic() -> None:
    rng = np.random.default_rng(0)
    dense, b = rng.standard_normal((8, 16)), rng.standard_normal((16, 8))
    sparse = np.where(rng.random(dense.shape) < 0.5, dense, 0.0)
    products = [Product(bf16_bits(a), bf16_bits(b)) for a in (dense, sparse)]
    try:
        full, half = measure_scu_power(SMALLEST_SCU, products, clock_gating=True)
    except VerilatorUnavailableError as error:
        pytest.skip(f"no compiled model: {error}")
    assert (full.cycles, half.cycles) == (dense.size, np.count_nonzero(sparse))
    assert {"datapath_0", "walker_0", "port_0", "block_rows_gates", "row_sums_gates"} <= set(full.modules)
    assert not [name for name in full.modules if "adder" in name or "multiplier" in name]
    held_sums = 8 * 34  # a register for each lane, clocked in every cycle of work
    assert full.clocks["row_sums_gates"] / 2 >= held_sums
    assert full.modules["block_rows_gates"] < half.modules["block_rows_gates"]
