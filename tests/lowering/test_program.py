"""Programs print what they hold, in few lines."""

import numpy as np
import pytest

from acf.lowering import Gemm, lower_gemm
from tests.lowering.random_products import fabric


def test_a_printed_program_shows_packets_with_kind_tile_destinations_and_flits() -> None:
    program = lower_gemm(Gemm(np.ones((16, 16), dtype=bool), np.ones((16, 16), dtype=bool)), fabric())
    text = str(program)
    assert "on 8 x 8 clusters" in text
    assert "serial tile (0, 0) to {0}, " in text
    assert "parallel tile (0, 0) to {0" in text


@pytest.mark.parametrize("tokens", [16, 8192])
def test_a_printed_program_is_short_however_many_packets_it_has(tokens: int) -> None:
    gemm = Gemm(np.ones((tokens, 512), dtype=bool), np.ones((512, 128), dtype=bool))
    assert len(str(lower_gemm(gemm, fabric())).splitlines()) <= 11
