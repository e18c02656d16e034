"""Copies: directions, bounds, and when host memory is read."""

import numpy as np
import pytest
import torch

from acf import runtime


@pytest.fixture
def device() -> runtime.Device:
    return runtime.Device("reference")


def test_bytes_go_in_across_and_out_again(device: runtime.Device) -> None:
    first, second = device.malloc(16), device.malloc(32)
    runtime.memcpy(first, np.arange(4, dtype=np.int32))
    runtime.memcpy(second[8:], first)
    found = np.zeros(8, dtype=np.int32)
    runtime.memcpy(found, second)
    assert found.tolist() == [0, 0, 0, 1, 2, 3, 0, 0]


def test_a_tensor_of_any_dtype_is_copied_by_its_bytes(device: runtime.Device) -> None:
    values = torch.arange(4, dtype=torch.bfloat16)
    buffer, found = device.malloc(8), torch.zeros(4, dtype=torch.bfloat16)
    runtime.memcpy(buffer, values)
    runtime.memcpy(found, buffer)
    assert torch.equal(found, values)


@pytest.mark.parametrize("wrong", [np.arange(8)[::2], torch.arange(8)[::2], [1, 2], None])
def test_what_is_no_contiguous_array_is_refused(device: runtime.Device, wrong: object) -> None:
    with pytest.raises(runtime.InvalidValueError, match="is no contiguous NumPy array"):
        runtime.memcpy(device.malloc(64), wrong)


def test_copies_beyond_an_end_and_between_host_arrays_are_refused(device: runtime.Device) -> None:
    with pytest.raises(runtime.IllegalAddressError, match="9 bytes do not fit in a region of 8"):
        runtime.memcpy(device.malloc(8), np.zeros(9, dtype=np.uint8))
    with pytest.raises(runtime.IllegalAddressError, match="8 bytes do not fit in the 7 of the host array"):
        runtime.memcpy(np.zeros(7, dtype=np.uint8), device.malloc(8))
    with pytest.raises(runtime.IllegalAddressError):
        runtime.memcpy(device.malloc(4), device.malloc(5))
    with pytest.raises(runtime.InvalidValueError, match="neither ndarray nor ndarray is device memory"):
        runtime.memcpy(np.zeros(1), np.zeros(1))


def test_pinned_memory_is_read_late_and_other_memory_at_once(device: runtime.Device) -> None:
    pinned, plain = runtime.HostBuffer(4), np.zeros(4, dtype=np.uint8)
    from_pinned, from_plain = device.malloc(4), device.malloc(4)
    runtime.memcpy_async(from_pinned, pinned)
    runtime.memcpy_async(from_plain, plain)
    pinned.array[:] = plain[:] = 9
    found = np.zeros(4, dtype=np.uint8)
    runtime.memcpy_async(found, from_pinned)  # to an array that is not pinned: waits
    assert found.tolist() == [9, 9, 9, 9]
    runtime.memcpy(found, from_plain)
    assert found.tolist() == [0, 0, 0, 0]


def test_pinned_memory_is_seen_as_an_array() -> None:
    host = runtime.HostBuffer(16)
    host.view(np.float32, (2, 2))[1, 1] = 1.0
    assert host.array[14:].tolist() == [0x80, 0x3F]
    with pytest.raises(runtime.InvalidValueError):
        runtime.HostBuffer(-1)
