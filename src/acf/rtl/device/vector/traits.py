"""What the queue must know of every program: its streams, and the width and destination of everything it emits."""

from dataclasses import dataclass

from acf.rtl.design.vector.operation import Operation
from acf.rtl.design.vector.programs import ALL_PROGRAMS
from acf.rtl.device.vector.descriptor import OUTPUTS


@dataclass(frozen=True)
class Emit:
    """What leaves: the output stream it goes to, whether as float32, and whether it is the last of a vector."""

    output: int
    is_wide: bool
    is_last: bool


@dataclass(frozen=True)
class Traits:
    """``reads_y``: a stream of y is read; ``has_second_x``: a second one of x. ``emits``: of a vector, in order."""

    reads_y: bool
    has_second_x: bool
    emits: tuple[Emit, ...]

    @property
    def vector_flits(self) -> list[int]:
        """Flits of a vector in every output stream."""
        return [sum(1 + each.is_wide for each in self.emits if each.output == output) for output in range(OUTPUTS)]


def traits_of(key: tuple[str, str, int]) -> Traits:
    """The traits of a program of `ALL_PROGRAMS`."""
    program: tuple[Operation, ...] = ALL_PROGRAMS[key]
    emitted = [each for each in program if each.emits]
    is_update = key[1] == "update"
    return Traits(
        # The mask of a ReLU is where its output, read as y, was positive.
        reads_y=any("y" in each.takes for each in program) or any(each.keeps == "mask" for each in program),
        has_second_x=sum(bool(each.takes) for each in program) > 1,
        emits=tuple(
            Emit(number if is_update else 0, not each.rounds, each is emitted[-1])
            for number, each in enumerate(emitted)
        ),
    )


ALL_TRAITS: tuple[Traits, ...] = tuple(traits_of(key) for key in ALL_PROGRAMS)
"""By number of the program."""
