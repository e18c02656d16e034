"""Launches: checked when submitted, errors of a run raised once by the next synchronisation."""

import numpy as np
import pytest

from acf import runtime
from acf.runtime.timeline import Cost
from tests.runtime.products import SPARSE, random_operands, run

FORWARD = runtime.Product(phase="forward", rows=4, weight=SPARSE, name="fc")


@pytest.fixture
def device() -> runtime.Device:
    return runtime.Device("reference")


def arguments(device: runtime.Device, program: runtime.Program) -> list[runtime.Buffer]:
    return [device.malloc(argument.nbytes) for argument in program.arguments]


def test_arguments_that_do_not_fit_the_program_are_refused(device: runtime.Device) -> None:
    program = device.compile(FORWARD)
    x, weight, output = arguments(device, program)
    with pytest.raises(runtime.InvalidValueError, match=r"takes 3 arguments \(x, weight, output\), not 2"):
        runtime.launch(program, [x, weight])
    with pytest.raises(runtime.IllegalAddressError, match=r"output fp32 \[4, 16\] needs 256 bytes and its region has"):
        runtime.launch(program, [x, weight, output[:100]])
    with pytest.raises(runtime.InvalidValueError, match="the result output overlaps an operand"):
        runtime.launch(program, [output, weight, output])
    with pytest.raises(runtime.InvalidValueError, match="names no device; pass a stream"):
        runtime.launch(runtime.Program.empty())


def test_arguments_may_be_regions_of_one_buffer(device: runtime.Device) -> None:
    program = device.compile(FORWARD)
    operands = random_operands(program)
    expected = run(device, program, operands)
    sizes = [argument.nbytes for argument in program.arguments]
    whole = device.malloc(sum(sizes))
    x, weight, output = whole[: sizes[0]], whole[sizes[0] : sum(sizes[:2])], whole[sum(sizes[:2]) :]
    for region, argument, values in zip((x, weight), program.arguments, operands, strict=False):
        runtime.memcpy(region, argument.encode(values))
    runtime.launch(program, [x, weight, output])
    np.testing.assert_array_equal(device.download(output, expected.shape), expected)


class LooseWireError(Exception):
    """An error that the runtime does not know."""


def test_a_failed_run_is_raised_once_cancels_what_follows_and_leaves_the_device_usable(
    device: runtime.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, stream, other = device.compile(FORWARD), device.stream(), device.stream()
    buffers = arguments(device, program)

    def fail(*_: object) -> Cost:
        raise LooseWireError("a wire came loose")

    monkeypatch.setattr(device.backend, "run", fail)
    runtime.launch(program, buffers, stream)
    monkeypatch.undo()
    host = runtime.HostBuffer(4)
    host.array[:] = 3
    runtime.memcpy_async(buffers[0], host, stream)  # behind the failure
    other.wait(device.event().record(stream))
    runtime.memcpy_async(buffers[1], host, other)  # waits for the failure
    with pytest.raises(runtime.LaunchFailureError, match="fc forward in stream 1 failed: a wire came loose"):
        stream.synchronize()
    with pytest.raises(runtime.LaunchFailureError):
        other.synchronize()
    device.synchronize()
    assert run(device, program, random_operands(program)).any()
    assert not device.download(buffers[0][:4], [1]).any()
    assert not device.download(buffers[1][:4], [1]).any()


def test_an_event_behind_a_failure_raises_it(device: runtime.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    program = device.compile(FORWARD)
    monkeypatch.setattr(device.backend, "compute", lambda _: 1 / 0)
    runtime.launch(program, arguments(device, program))
    event = device.event().record()
    with pytest.raises(runtime.LaunchFailureError, match="division by zero"):
        event.synchronize()
    with pytest.raises(runtime.LaunchFailureError, match="division by zero"):
        device.synchronize()
    runtime.synchronize(device)


def test_an_empty_program_takes_only_its_submission() -> None:
    device = runtime.Device("sim", link=runtime.HostLink(submission_s=1e-6))
    for _ in range(5000):  # more than the queue holds
        runtime.launch(runtime.Program.empty(), (), device.default_stream)
    device.synchronize()
    assert len(device.timeline.spans) == 5000
    assert device.timeline.usage().total_s == pytest.approx(5e-3)
