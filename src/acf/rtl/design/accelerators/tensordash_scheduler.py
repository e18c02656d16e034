"""TensorDash's scheduler of one PE: the staged pair that every lane multiplies, and the steps that this drains.

Bit ``step * lanes + lane`` of a staging buffer is set where a pair is effectual and has still to be multiplied. What is
taken is defined by `acf.sim.accelerators.scheduler`; the same levels of lanes decide here, one after another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.primitives.bits import any_of
from acf.sim.accelerators.moves import PAPER_MOVES, WIDE_MOVES, Moves, check_moves, lane_levels


@dataclass(frozen=True)
class SchedulerSpec:
    """``lanes`` x ``depth`` staged pairs and the options of a lane in priority order."""

    lanes: int = 4
    depth: int = 4
    moves: Moves = PAPER_MOVES

    def __post_init__(self) -> None:
        check_moves(self.moves, self.lanes, self.depth)

    @property
    def staged_bits(self) -> int:
        """Bits of a staging buffer."""
        return self.lanes * self.depth

    @property
    def select_bits(self) -> int:
        """Bits that name an option of a lane."""
        return max(1, (len(self.moves) - 1).bit_length())

    def places(self, lane: int) -> list[int]:
        """The staged bits that a lane may take, in priority order."""
        return [step * self.lanes + (lane + offset) % self.lanes for step, offset in self.moves]


NARROW = SchedulerSpec()
"""4 lanes, 4 deep, the paper's eight moves: four levels."""

WIDE = SchedulerSpec(lanes=16, depth=3, moves=WIDE_MOVES)
"""16 lanes, 3 deep, eight moves: six levels."""


class ScheduleLogic(Component):
    """Combinational: ``staged`` to ``select`` (an option per lane), ``taken`` (a bit per lane), ``left``, ``drained``.

    ``drained`` is the number of leading steps that hold nothing any more.
    """

    def __init__(self, spec: SchedulerSpec = NARROW) -> None:
        self.spec = spec
        super().__init__(
            {
                "staged": In(spec.staged_bits),
                "select": Out(spec.select_bits * spec.lanes),
                "taken": Out(spec.lanes),
                "left": Out(spec.staged_bits),
                "drained": Out(range(spec.depth + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One stage of logic per level; lanes of a level see the same buffer."""
        m = Module()
        spec, staged = self.spec, self.staged
        for number, level in enumerate(lane_levels(spec.lanes, spec.moves)):
            after = Signal(spec.staged_bits, name=f"after_level_{number}")
            takes = [self._decide(m, staged, lane) for lane in level]
            m.d.comb += after.eq(staged & ~any_of(takes))
            staged = after
        m.d.comb += self.left.eq(staged)
        for step in range(spec.depth + 1):
            with m.If(staged[: step * spec.lanes] == 0):
                m.d.comb += self.drained.eq(step)
        return m

    def _decide(self, m: Module, staged: Value, lane: int) -> Value:
        """Let a lane take the first effectual of its options; gives the staged bit that it takes, one-hot."""
        spec, width = self.spec, self.spec.select_bits
        takes = Signal(spec.staged_bits, name=f"lane_{lane}_takes")
        wanted = Cat(*(staged[place] for place in spec.places(lane)))
        m.d.comb += self.taken[lane].eq(wanted.any())
        for option in reversed(range(len(spec.moves))):
            with m.If(wanted[option]):
                m.d.comb += [
                    self.select[lane * width : (lane + 1) * width].eq(option),
                    takes.eq(1 << spec.places(lane)[option]),
                ]
        return takes


class TensorDashScheduler(Component):
    """The scheduler with its staging buffer of effectual bits.

    In a cycle with ``enable`` the lanes take what `ScheduleLogic` says, the buffer moves on by ``advance`` steps (at
    most ``drained``; a tile gives the least of its PEs) and ``fill`` comes in behind: the ``depth`` steps that follow
    the staged ones, of which the first ``advance`` are used. ``load`` replaces the buffer by ``fill``, to start.
    """

    def __init__(self, spec: SchedulerSpec = NARROW) -> None:
        self.spec = spec
        super().__init__(
            {
                "fill": In(spec.staged_bits),
                "load": In(1),
                "enable": In(1),
                "advance": In(range(spec.depth + 1)),
                "select": Out(spec.select_bits * spec.lanes),
                "taken": Out(spec.lanes),
                "drained": Out(range(spec.depth + 1)),
                "staged": Out(spec.staged_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The logic, the buffer, and a multiplexer over the steps it may move by."""
        m = Module()
        spec = self.spec
        m.submodules.logic = logic = ScheduleLogic(spec)
        m.d.comb += [
            logic.staged.eq(self.staged),
            self.select.eq(logic.select),
            self.taken.eq(logic.taken),
            self.drained.eq(logic.drained),
        ]
        both = Cat(logic.left, self.fill)
        with m.If(self.load):
            m.d.sync += self.staged.eq(self.fill)
        with m.Elif(self.enable), m.Switch(self.advance):
            for steps in range(spec.depth + 1):
                with m.Case(steps):
                    m.d.sync += self.staged.eq(both[steps * spec.lanes :][: spec.staged_bits])
        return m


@dataclass(frozen=True)
class Schedule:
    """What one cycle takes: an option per lane (-1 for none), what is ``left`` staged, leading empty steps."""

    options: tuple[int, ...]
    left: int
    drained: int


def schedule(staged: int, spec: SchedulerSpec = NARROW) -> Schedule:
    """One cycle of `ScheduleLogic`, lane by lane.

    >>> schedule(0b0000_0000_0001_0010)  # lane 0 takes its own pair of the next step, lane 1 that of this
    Schedule(options=(1, 0, -1, -1), left=0, drained=4)
    """
    options = [-1] * spec.lanes
    for lane in (lane for level in lane_levels(spec.lanes, spec.moves) for lane in level):
        for option, place in enumerate(spec.places(lane)):
            if staged >> place & 1:
                staged &= ~(1 << place)
                options[lane] = option
                break
    drained = 0
    while drained < spec.depth and staged & ((1 << (drained + 1) * spec.lanes) - 1) == 0:
        drained += 1
    return Schedule(tuple(options), staged, drained)


def fills_of(rows: Sequence[int], spec: SchedulerSpec = NARROW) -> list[tuple[int, int]]:
    """The (fill, advance) of every cycle of a row of effectual bits given as one word of lanes per step.

    The first entry loads the buffer; there are as many more as the row takes cycles.
    """
    position, staged = 0, _window(rows, 0, spec)
    fills = [(staged, 0)]
    while position < len(rows):
        outcome = schedule(staged, spec)
        fill = _window(rows, position + spec.depth, spec)
        fills.append((fill, outcome.drained))
        staged = (outcome.left | fill << spec.staged_bits) >> outcome.drained * spec.lanes & (1 << spec.staged_bits) - 1
        position += outcome.drained
    return fills


def _window(rows: Sequence[int], first: int, spec: SchedulerSpec) -> int:
    return sum(row << step * spec.lanes for step, row in enumerate(rows[first : first + spec.depth]))
