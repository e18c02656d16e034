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


def test_a_product_whose_operands_memory_could_never_hold_is_refused(device: runtime.Device) -> None:
    product = runtime.Product("forward", 1 << 31, runtime.WeightBlocks.dense(8, 8), "fp32", name="fc")
    with pytest.raises(runtime.MemoryAllocationError, match=r"the operands of 'fc' take \d+ bytes, more than the"):
        device.compile(product)


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
    with pytest.raises(runtime.InvalidDevicePointerError, match=r"used with another device, .* use buffers of one"):
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


def test_a_freed_buffer_serves_pending_operations_and_its_memory_comes_back_after_them() -> None:
    device = runtime.Device("reference", memory_bytes=4096)
    host, target, buffer = runtime.HostBuffer(8), runtime.HostBuffer(8), device.malloc(8)
    host.array[:] = 7
    runtime.memcpy_async(buffer, host)
    runtime.memcpy_async(target, buffer)
    buffer.free()
    assert device.free_bytes == 0
    assert device.malloc(8).address == buffer.address  # memory is short, so it waits for the copies
    np.testing.assert_array_equal(target.array, 7)


def test_a_finalizer_may_free_a_buffer_while_the_device_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    device = runtime.Device("reference")
    first, second = device.malloc(4), device.malloc(4)
    allocate = device.backend.allocate

    def collecting(nbytes: int) -> object:
        second.free()  # as if the garbage collector ran while the device holds its locks
        return allocate(nbytes)

    monkeypatch.setattr(device.backend, "allocate", collecting)
    assert device.malloc(4).nbytes == 4
    first.free()
    assert device.free_bytes == device.properties.memory_bytes - 4096


def test_an_operation_that_waits_for_its_own_device_is_refused(
    device: runtime.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = device.compile(runtime.Product(phase="forward", rows=1, weight=SPARSE))
    monkeypatch.setattr(device.backend, "compute", lambda _: device.synchronize())
    runtime.launch(program, [device.malloc(argument.nbytes) for argument in program.arguments])
    device.event().record()
    with pytest.raises(runtime.DeviceError, match="an operation of the device waits for the device"):
        device.synchronize()


def test_work_can_be_charged_to_an_engine_that_exists(device: runtime.Device) -> None:
    device.charge("compute", runtime.Cost(0.5))
    device.synchronize()
    assert device.timeline.usage().busy_s["compute"] == pytest.approx(0.5)
    with pytest.raises(runtime.InvalidValueError, match="engine 'dma' is not one of h2d, d2h, d2d, compute"):
        device.charge("dma", runtime.Cost(0.5))


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
