"""Matrices that are read where they lie are the matrices that im2col would copy."""

import numpy as np

from acf.runtime.implicit_matrix import ImplicitMatrix, add_offsets


def test_an_array_in_either_order_is_read_without_a_copy() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    for each in (values, values.T):
        matrix = ImplicitMatrix.of(each)
        assert matrix.shape == each.shape
        assert np.shares_memory(matrix.memory, values)
        np.testing.assert_array_equal(matrix.values(), each)
        np.testing.assert_array_equal(matrix.T.values(), each.T)


def test_windows_that_overlap_share_their_memory() -> None:
    signal = np.arange(6, dtype=np.float32)
    windows = ImplicitMatrix(signal, np.arange(4), np.arange(3))
    np.testing.assert_array_equal(windows.values(), np.lib.stride_tricks.sliding_window_view(signal, 3))
    assert windows.values().flags.c_contiguous


def test_offsets_of_nested_axes_run_over_the_innermost_first() -> None:
    assert add_offsets(np.array([0, 10]), np.array([0, 5]), np.array([0, 1])).tolist() == [0, 1, 5, 6, 10, 11, 15, 16]
