"""Streams keep their order, events order streams, and both tell device time."""

import numpy as np
import pytest

from acf import runtime

LINK = runtime.HostLink(generation=3, lanes=1, latency_s=0.0, submission_s=0.0)
MEBIBYTE = 1 << 20
COPY_S = LINK.copy_seconds(MEBIBYTE)


@pytest.fixture
def device() -> runtime.Device:
    return runtime.Device("sim", link=LINK)


def test_nothing_runs_before_it_is_waited_for(device: runtime.Device) -> None:
    host, buffer, event = runtime.HostBuffer(4), device.malloc(4), device.event()
    runtime.memcpy_async(buffer, host)
    event.record()
    with pytest.raises(runtime.NotReadyError, match="not reached yet"):
        event.elapsed(event)
    event.synchronize()
    assert event.query()
    assert event.elapsed(event) == 0.0


def test_polling_an_event_or_a_stream_makes_progress(device: runtime.Device) -> None:
    host, buffer, event = runtime.HostBuffer(4), device.malloc(4), device.event()
    stream = device.stream()
    for _ in range(3):
        runtime.memcpy_async(buffer, host, stream)
    event.record(stream)
    assert not event.query()
    assert any(event.query() for _ in range(10))
    runtime.memcpy_async(buffer, host, stream)
    assert any(stream.query() for _ in range(10))


def test_flushing_runs_what_is_pending_while_the_hosts_clock_stands(device: runtime.Device) -> None:
    host, buffer, stream = runtime.HostBuffer(MEBIBYTE), device.malloc(MEBIBYTE), device.stream()
    host.array[:] = 7
    runtime.memcpy_async(buffer, host, stream)
    stream.flush()
    assert buffer[:].read()[-1] == 7
    assert device.timeline.host_s == 0.0
    stream.synchronize()
    assert device.timeline.host_s == pytest.approx(COPY_S)


def test_elapsed_is_the_time_of_the_copies_between(device: runtime.Device) -> None:
    host, buffer = runtime.HostBuffer(MEBIBYTE), device.malloc(MEBIBYTE)
    start, end = device.event().record(), device.event()
    runtime.memcpy_async(buffer, host)
    runtime.memcpy_async(buffer, host)
    end.record().synchronize()
    assert start.elapsed(end) == pytest.approx(2 * COPY_S)


def test_copies_in_two_directions_overlap_and_in_one_direction_do_not(device: runtime.Device) -> None:
    host, other = runtime.HostBuffer(MEBIBYTE), runtime.HostBuffer(MEBIBYTE)
    buffers = [device.malloc(MEBIBYTE) for _ in range(3)]
    inwards, outwards, second = device.stream(), device.stream(), device.stream()
    runtime.memcpy_async(buffers[0], host, inwards)
    runtime.memcpy_async(other, buffers[1], outwards)
    runtime.memcpy_async(buffers[2], host, second)
    device.synchronize()
    spans = {span.stream: span for span in device.timeline.spans}
    assert spans[inwards.number].start_s == spans[outwards.number].start_s == 0.0
    assert spans[second.number].start_s == pytest.approx(COPY_S)
    usage = device.timeline.usage()
    assert usage.total_s == pytest.approx(2 * COPY_S)
    assert usage.busy_s["d2h"] == pytest.approx(COPY_S)


def test_a_stream_waits_for_the_event_of_another(device: runtime.Device) -> None:
    host, out = runtime.HostBuffer(MEBIBYTE), runtime.HostBuffer(MEBIBYTE)
    host.array[:] = 5
    buffer, writer, reader = device.malloc(MEBIBYTE), device.stream(), device.stream()
    runtime.memcpy_async(buffer, host, writer)
    event = device.event().record(writer)
    reader.wait(event)
    runtime.memcpy_async(out, buffer, reader)
    reader.synchronize()
    assert out.array.min() == 5
    assert device.timeline.spans[-1].start_s == pytest.approx(COPY_S)


def test_a_wait_is_for_the_record_before_it_and_not_for_a_later_one(device: runtime.Device) -> None:
    host, buffer = runtime.HostBuffer(MEBIBYTE), device.malloc(MEBIBYTE)
    first, second, event = device.stream(), device.stream(), device.event()
    second.wait(event)  # never recorded: complete
    event.record(first)
    second.wait(event)
    runtime.memcpy_async(buffer, host, first)
    event.record(first)
    out = runtime.HostBuffer(4)
    runtime.memcpy_async(out, buffer[:4], second)
    device.synchronize()
    assert device.timeline.spans[-1].start_s == 0.0


def test_an_event_that_was_never_recorded_has_no_time(device: runtime.Device) -> None:
    event = device.event()
    assert event.query()
    event.synchronize()
    with pytest.raises(runtime.NotReadyError, match="never recorded"):
        event.elapsed(device.event().record())


def test_host_work_delays_what_is_submitted_after_it(device: runtime.Device) -> None:
    device.host_work(0.25)
    runtime.memcpy(device.malloc(4), np.zeros(4, dtype=np.uint8))
    assert device.timeline.spans[0].start_s == 0.25
    assert device.timeline.usage().host_s == 0.25
    with pytest.raises(runtime.InvalidValueError, match="-1 seconds of host work"):
        device.host_work(-1)
