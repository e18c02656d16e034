"""The allocator never hands out a byte twice; regions stay inside their buffers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acf.runtime import Device, IllegalAddressError, InvalidValueError, MemoryAllocationError
from acf.runtime.memory import PAGE_BYTES, Allocator, pages_of


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5 * PAGE_BYTES)), max_size=40))
def test_ranges_never_overlap_and_all_memory_comes_back(steps: list[tuple[bool, int]]) -> None:
    allocator, held = Allocator(16 * PAGE_BYTES), []
    for takes, number in steps:
        if takes or not held:
            try:
                held.append((allocator.take(number), number))
            except MemoryAllocationError:
                continue
            ends = sorted((start, start + pages_of(size)) for start, size in held)
            assert all(before[1] <= after[0] for before, after in pairwise(ends))
            assert ends[-1][1] <= allocator.capacity
        else:
            allocator.give_back(*held.pop(number % len(held)))
    for each in held:
        allocator.give_back(*each)
    assert allocator.take(16 * PAGE_BYTES) == 0


def test_memory_that_is_not_there_is_refused_with_what_is() -> None:
    device = Device("reference", memory_bytes=4 * PAGE_BYTES)
    buffers = [device.malloc(1) for _ in range(4)]
    with pytest.raises(MemoryAllocationError, match="1 bytes do not fit: 0 of 16384 bytes are free"):
        device.malloc(1)
    buffers[0].free()
    buffers[2].free()
    with pytest.raises(MemoryAllocationError, match="8192 of 16384 bytes are free, the largest range has 4096"):
        device.malloc(2 * PAGE_BYTES)
    assert device.malloc(PAGE_BYTES).address == 0


@pytest.mark.parametrize("span", [slice(0, 11), slice(-1, 4), slice(8, 4)])
def test_a_region_outside_its_buffer_is_refused(span: slice) -> None:
    with pytest.raises(IllegalAddressError, match="outside the buffer of 10 bytes"):
        Device("reference").malloc(10)[span]


def test_a_region_is_of_consecutive_bytes() -> None:
    buffer = Device("reference").malloc(10)
    assert (buffer[2:].offset, buffer[2:].nbytes) == (2, 8)
    with pytest.raises(InvalidValueError, match="step 2 of a region is not 1"):
        buffer[::2]
    with pytest.raises(InvalidValueError, match="-1 bytes cannot be allocated"):
        buffer.device.malloc(-1)
