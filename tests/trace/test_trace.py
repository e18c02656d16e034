"""Traces made from arrays."""

import numpy as np
import pytest

import acf
from acf.lowering import effectual_macs


def test_matmuls_that_do_not_multiply_are_refused() -> None:
    with pytest.raises(acf.AcfError, match=r"fc: a \[2, 3\] and b \[4, 2\] do not multiply"):
        acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.ones((2, 3)), np.ones((4, 2)))])


def test_matmuls_with_one_name_do_not_share_operands() -> None:
    ones, zeros = np.ones((2, 2)), np.zeros((2, 2))
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", ones, ones), acf.Matmul("fc", "forward", zeros, ones)])
    assert effectual_macs(trace) == 8
