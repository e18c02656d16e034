"""Random interleavings over streams, events and threads: nothing is lost, reordered or left waiting."""

import threading

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from acf import runtime

STREAMS, SLOTS, THREADS = 4, 3, 4
SLOT = st.integers(0, SLOTS - 1)
STREAM = st.integers(0, STREAMS - 1)


class StreamsAndEvents(RuleBasedStateMachine):
    """Every stream owns a buffer of slots; a plain list beside it has what the slots must hold in the end."""

    @initialize()
    def begin(self) -> None:
        self.device = runtime.Device("sim", memory_bytes=1 << 16)
        self.streams = [self.device.stream() for _ in range(STREAMS)]
        self.buffers = [self.device.malloc(4 * SLOTS) for _ in range(STREAMS)]
        self.expected = np.zeros((STREAMS, SLOTS), dtype=np.int32)
        self.written = 0

    @rule(stream=STREAM, slot=SLOT)
    def write(self, stream: int, slot: int) -> None:
        self.written += 1
        self.expected[stream, slot] = self.written
        target = self.buffers[stream][4 * slot : 4 * slot + 4]
        runtime.memcpy_async(target, np.array([self.written], dtype=np.int32), self.streams[stream])

    @rule(source=STREAM, reader=STREAM, slot=SLOT, other=SLOT)
    def hand_over(self, source: int, reader: int, slot: int, other: int) -> None:
        """The reading stream takes what the source stream wrote, in the order of an event each way."""
        ready, done = self.device.event().record(self.streams[source]), self.device.event()
        self.streams[reader].wait(ready)
        there, here = self.buffers[reader], self.buffers[source]
        runtime.memcpy_async(there[4 * other : 4 * other + 4], here[4 * slot : 4 * slot + 4], self.streams[reader])
        self.streams[source].wait(done.record(self.streams[reader]))
        self.expected[reader, other] = self.expected[source, slot]

    @rule(stream=STREAM)
    def launch_nothing(self, stream: int) -> None:
        runtime.launch(runtime.Program.empty(), (), self.streams[stream])

    @rule(stream=STREAM)
    def poll(self, stream: int) -> None:
        self.streams[stream].query()

    @rule(stream=STREAM)
    def synchronize_and_compare(self, stream: int) -> None:
        self.streams[stream].synchronize()
        found = np.zeros(SLOTS, dtype=np.int32)
        runtime.memcpy(found, self.buffers[stream], self.streams[stream])
        assert found.tolist() == self.expected[stream].tolist()

    @invariant()
    def a_stream_never_overlaps_itself(self) -> None:
        reached = [0.0] * (STREAMS + 1)
        for span in self.device.timeline.spans:
            assert span.start_s >= reached[span.stream]
            reached[span.stream] = span.end_s


TestStreamsAndEvents = StreamsAndEvents.TestCase
TestStreamsAndEvents.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_threads_that_share_a_device_lose_nothing_and_never_wait_for_each_other_for_ever() -> None:
    device, rounds = runtime.Device("sim"), 60
    shared = device.stream()
    results: dict[int, list[int]] = {}

    def work(number: int) -> None:
        rng, own = np.random.default_rng(number), device.stream()
        buffer, pinned, seen = device.malloc(4), runtime.HostBuffer(4), []
        for step in range(rounds):
            runtime.memcpy_async(buffer, np.array([step], dtype=np.int32), own)
            if rng.random() < 0.3:
                event = device.event().record(shared)
                own.wait(event)
                shared.wait(device.event().record(own))
            runtime.launch(runtime.Program.empty(), (), shared if rng.random() < 0.5 else own)
            runtime.memcpy_async(pinned, buffer, own)
            [own.synchronize, device.synchronize][int(rng.random() < 0.2)]()
            seen.append(int(pinned.view(np.int32, (1,))[0]))
        results[number] = seen

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert results == {number: list(range(rounds)) for number in range(THREADS)}
