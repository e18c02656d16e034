"""Many launches on 16 streams of a device: each runs once, in the order of its stream, and writes its own result."""

from collections import Counter

import numpy as np

from acf import runtime
from acf.runtime.timeline import MOST_SPANS, Cost
from acf.runtime.work_queue import HostStep, Operation
from tests.load.footprint import MIB, Load, in_tenths

STREAMS, INPUTS, SLOTS = 16, 8, 4
ROWS, SIDE = 2, 8
NEVER = -1
"""No launch wrote into this slot."""


class Order:
    """Hears what a device completes, and whether it is in the order of submission."""

    def __init__(self) -> None:
        self.last: Counter[int] = Counter()
        self.launches: Counter[int] = Counter()
        self.out_of_order = 0

    def completed(self, operation: Operation, cost: Cost) -> None:
        """An operation has run."""
        number = operation.stream.number
        self.out_of_order += operation.sequence <= self.last[number]
        self.last[number] = operation.sequence
        self.launches[number] += operation.program is not None

    def host(self, step: HostStep) -> None:
        """The host did something."""


class Launches:
    """A device whose streams multiply one of several inputs by a permutation into the next slot of their results."""

    def __init__(self) -> None:
        self.device = runtime.Device("cpu")
        self.order = Order()
        self.device.observers.append(self.order)
        self.streams = [self.device.stream() for _ in range(STREAMS)]
        product = runtime.Product(phase="forward", rows=ROWS, weight=runtime.WeightBlocks.dense(SIDE, SIDE))
        self.program = self.device.compile(product)
        self.inputs = np.arange(INPUTS * ROWS * SIDE, dtype=np.float32).reshape(INPUTS, ROWS, SIDE) % 127
        self.permutation = np.roll(np.eye(SIDE, dtype=np.float32), 1, axis=1)
        self.operands = [self.device.upload(values) for values in self.inputs]
        self.weight = self.device.upload(self.permutation)
        self.slot_bytes = self.program.arguments[-1].nbytes
        self.results = [self.device.malloc(SLOTS * self.slot_bytes) for _ in self.streams]
        self.expected = np.full((STREAMS, SLOTS), NEVER)
        self.random = np.random.default_rng(0)
        self.sent: Counter[int] = Counter()

    def launch(self, count: int) -> None:
        """So many launches, each on a random stream; some of the time the host waits for one of them."""
        for number, chosen in self.random.integers(0, (STREAMS, INPUTS), (count, 2)).tolist():
            slot = self.sent[number] % SLOTS
            self.sent[number] += 1
            self.expected[number, slot] = chosen
            region = runtime.Region(self.results[number], slot * self.slot_bytes, self.slot_bytes)
            runtime.launch(self.program, [self.operands[chosen], self.weight, region], self.streams[number])
            if chosen == 0 and slot == 0:
                self.streams[number].synchronize()

    def wrong_results(self) -> int:
        """Slots that do not hold the product of the input that was launched into them last."""
        self.device.synchronize()
        products = self.inputs @ self.permutation.T
        shape = (SLOTS, ROWS, SIDE)
        found = np.stack([self.device.download(each, shape) for each in self.results])
        wrong = (found != products[self.expected]).any(axis=(2, 3))
        return int((wrong & (self.expected != NEVER)).sum())


def load_launches(count: int) -> Load:
    """``count`` launches."""
    launches = Launches()
    seconds, early, late = in_tenths(count, launches.launch)
    wrong = []
    if misplaced := launches.wrong_results():
        wrong.append(f"{misplaced} of {STREAMS * SLOTS} results are not of the last launch into them")
    by_stream = {stream.number: launches.sent[place] for place, stream in enumerate(launches.streams)}
    if +launches.order.launches != Counter(by_stream):
        wrong.append(f"{sum(launches.order.launches.values())} launches ran, {count} were sent")
    if launches.order.out_of_order:
        wrong.append(f"{launches.order.out_of_order} operations ran before an earlier one of their stream")
    spans = len(launches.device.timeline.spans)
    if spans > 2 * MOST_SPANS:
        wrong.append(f"the timeline holds {spans} spans, more than {2 * MOST_SPANS}")
    return Load(
        f"launches on {STREAMS} streams",
        count,
        seconds,
        (late.resident_bytes - early.resident_bytes) / MIB,
        late.open_files - early.open_files,
        {"spans of the timeline": spans},
        wrong,
    )
