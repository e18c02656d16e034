"""Traced operations: what cannot have run is refused."""

import pytest

from acf.trace import TracedConv


def test_an_impossible_convolution_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        TracedConv((3, 3), (0, 1), input_size=(8, 8))
