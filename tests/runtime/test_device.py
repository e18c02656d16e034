"""Devices refuse misuse by name and stay usable afterwards."""

import numpy as np
import pytest

from acf import runtime
from acf.runtime.memory import HostStorage
from tests.runtime.products import SPARSE, random_operands, run


@pytest.fixture
def device() -> runtime.Device:
    return runtime.Device("reference")


def test_the_name_of_no_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(runtime.InvalidDeviceError, match="'gpu' is not one of reference, cpu, cuda, sim, rtl"):
        runtime.Device("gpu")
    with pytest.raises(runtime.InvalidDeviceError, match="cpu models no architecture, so it takes no spec"):
        runtime.Device("cpu", "acf-512")


def test_a_buffer_is_freed_once_and_not_used_afterwards(device: runtime.Device) -> None:
    buffer = device.malloc(16)
    buffer.free()
    with pytest.raises(runtime.InvalidDevicePointerError, match="was freed"):
        buffer.free()
    with pytest.raises(runtime.InvalidDevicePointerError, match="was freed"):
        runtime.memcpy(buffer, np.zeros(16, dtype=np.uint8))
    assert device.free_bytes == device.properties.memory_bytes


def test_memory_streams_and_events_of_another_device_are_refused(device: runtime.Device) -> None:
    other = runtime.Device("reference")
    here, there = device.malloc(4), other.malloc(4)
    with pytest.raises(runtime.InvalidDevicePointerError, match="use buffers of one device"):
        runtime.memcpy(here, there)
    with pytest.raises(runtime.InvalidDevicePointerError):
        device.free(there)
    with pytest.raises(runtime.InvalidResourceHandleError, match="the stream belongs to"):
        runtime.memcpy(here, np.zeros(4, dtype=np.uint8), other.stream())
    with pytest.raises(runtime.InvalidResourceHandleError, match="the event belongs to"):
        device.stream().wait(other.event())
    runtime.memcpy(here, np.ones(4, dtype=np.uint8))
    np.testing.assert_array_equal(device.download(here, [1], "fp32").view(np.uint8), 1)


def test_a_machine_without_room_gives_the_address_back(device: runtime.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(nbytes: int) -> HostStorage:
        raise MemoryError("no room")

    monkeypatch.setattr(device.backend, "allocate", full)
    with pytest.raises(runtime.MemoryAllocationError, match="no room for a buffer of 8 bytes"):
        device.malloc(8)
    assert device.free_bytes == device.properties.memory_bytes


def test_free_waits_for_operations_that_use_the_buffer(device: runtime.Device) -> None:
    host = runtime.HostBuffer(8)
    buffer = device.malloc(8)
    host.array[:] = 7
    runtime.memcpy_async(buffer, host)
    target = runtime.HostBuffer(8)
    runtime.memcpy_async(target, buffer)
    buffer.free()
    np.testing.assert_array_equal(target.array, 7)


def test_properties_say_what_is_modelled() -> None:
    link = runtime.HostLink(generation=5, lanes=8)
    modelled = runtime.Device("sim", "tensordash", link=link).properties
    assert (modelled.architecture, modelled.link, modelled.backend) == ("tensordash", link, "sim")
    assert modelled.macs_per_cycle
    assert modelled.clock_hz
    assert runtime.Device("cpu").properties.architecture is None


@pytest.mark.parametrize("phase", ["forward", "input_grad", "weight_grad"])
def test_one_program_runs_on_every_backend_that_this_machine_has(phase: str) -> None:
    program = runtime.Program(runtime.Product(phase=phase, rows=6, weight=SPARSE))
    operands = random_operands(program)
    expected = run(runtime.Device("reference"), program, operands)
    for name in ("cpu", "sim"):
        found = run(runtime.Device(name), program, operands)
        np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02)
