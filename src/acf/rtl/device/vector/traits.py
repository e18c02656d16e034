"""What the queue must know of every program: its streams, and the width and destination of everything it emits."""

from dataclasses import dataclass

from acf.rtl.design.vector.operation import Operation
from acf.rtl.device.vector.descriptor import OUTPUTS, PROGRAMS, UNQUEUED

Key = tuple[str, str, int]

DESTINATIONS: dict[Key, tuple[int, ...]] = {
    # Momentum, master weight, operand.
    ("sgd", "update", 0): (0, 1, 2),
    # Both moments, master weight, operand.
    ("adam", "update", 0): (0, 0, 1, 2),
    # x_hat, output.
    ("layer_norm", "forward", 1): (0, 1),
    # Maximum, place.
    ("pool", "forward", 1): (0, 1),
    # Both rows of the input.
    ("pool", "backward", 1): (0, 0, 1, 1),
}
"""The output of everything that a vector emits, in order; of other programs all goes to the first."""

SECOND_TAKES: dict[Key, tuple[bool, ...]] = {
    # Both moments from x, then the master weight.
    ("adam", "update", 0): (False, False, True),
    # Two pixels of a row, two of the next.
    ("pool", "forward", 1): (False, False, True, True),
}
"""Which takes of a vector, in order, are from the second x; of other programs all but the first."""


@dataclass(frozen=True)
class Emit:
    """What leaves: the output stream it goes to, whether as float32, and whether it is the last of a vector."""

    output: int
    is_wide: bool
    is_last: bool


@dataclass(frozen=True)
class Traits:
    """``reads_y``: a stream of y is read; ``from_second``: of every take, whether it is from the second x.

    ``emits``: of a vector, in order. ``is_queued``: the streams of a queue can read what the program takes.
    """

    reads_y: bool
    from_second: tuple[bool, ...]
    emits: tuple[Emit, ...]
    is_queued: bool = True

    @property
    def stream_takes(self) -> tuple[int, int, int]:
        """Vectors of x, y and second x that a vector of the pass takes."""
        seconds = sum(self.from_second)
        return len(self.from_second) - seconds, int(self.reads_y), seconds

    @property
    def vector_flits(self) -> list[int]:
        """Flits of a vector in every output stream."""
        return [sum(1 + each.is_wide for each in self.emits if each.output == output) for output in range(OUTPUTS)]


def traits_of(key: Key) -> Traits:
    """The traits of a program."""
    if key in UNQUEUED:
        return Traits(reads_y=False, from_second=(False,), emits=(), is_queued=False)
    program: tuple[Operation, ...] = PROGRAMS.programs[key]
    emitted = [each for each in program if each.emits]
    destinations = DESTINATIONS.get(key, (0,) * len(emitted))
    takes = sum(bool(each.takes) for each in program)
    return Traits(
        # A mask is where y is positive: the output of a ReLU, or the one-hot label of a row.
        reads_y=any("y" in each.takes or each.keeps == "mask" or each.left == "mask_one" for each in program),
        from_second=SECOND_TAKES.get(key, (False,) + (True,) * (takes - 1)),
        emits=tuple(
            Emit(output, not each.rounds, each is emitted[-1])
            for output, each in zip(destinations, emitted, strict=True)
        ),
    )


TRAITS: dict[Key, Traits] = {key: traits_of(key) for key in PROGRAMS.programs}
"""By program."""
