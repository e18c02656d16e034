"""The captured steps of runs on modelled machines."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from acf.bench import OnProgress
from acf.bench.pong.record import ScorePoint, SystemFigures
from acf.bench.pong.store import PongStore
from acf.sim import simulate
from acf.trace import Trace

MOMENTS = ("start", "middle", "end")


@dataclass(frozen=True)
class SystemRow:
    """One machine on the captured steps of one variant, means over seeds.

    ``utilization``: U at start, middle and end of the runs; ``step_seconds`` and ``energy_j``: at the end.
    """

    variant: str
    machine: str
    utilization: dict[str, float]
    step_seconds: float
    energy_j: float
    examples: int


def simulate_missing(store: PongStore, machines: Sequence[str], on_progress: OnProgress) -> None:
    """Play every captured step, of runs that have not ended too, on every machine, unless the store has the figures."""
    missing = list(_missing(store, machines))
    for index, (variant, seed, moment, machine) in enumerate(missing):
        on_progress(f"{variant}, seed {seed}, {moment}, on {machine}", index / len(missing))
        trace = Trace.load(store.trace(variant, seed, moment))
        result = simulate(trace, machine)
        store.add(
            SystemFigures(
                variant,
                seed,
                moment,
                machine,
                result.step_utilization,
                result.cycles,
                result.step_seconds,
                result.energy_j,
                _examples(trace),
            )
        )
    if missing:
        store.write_json()


def system_rows(store: PongStore) -> list[SystemRow]:
    """The figures of the store, one row for each variant and machine."""
    figures = store.rows(SystemFigures)
    pairs = dict.fromkeys((each.variant, each.machine) for each in figures)
    return [_row([each for each in figures if (each.variant, each.machine) == pair]) for pair in sorted(pairs)]


def _row(figures: Sequence[SystemFigures]) -> SystemRow:
    by_moment = {moment: [each for each in figures if each.moment == moment] for moment in MOMENTS}
    last = by_moment["end"] or list(figures)
    return SystemRow(
        figures[0].variant,
        figures[0].machine,
        {moment: mean(each.utilization for each in found) for moment, found in by_moment.items() if found},
        mean(each.step_seconds for each in last),
        mean(each.energy_j for each in last),
        last[0].examples,
    )


def _missing(store: PongStore, machines: Sequence[str]) -> Iterator[tuple[str, int, str, str]]:
    known = {(each.variant, each.seed, each.moment, each.machine) for each in store.rows(SystemFigures)}
    for variant, seed in dict.fromkeys((point.variant, point.seed) for point in store.rows(ScorePoint)):
        for moment in MOMENTS:
            if store.trace(variant, seed, moment).exists():
                for machine in machines:
                    if (variant, seed, moment, machine) not in known:
                        yield variant, seed, moment, machine


def _examples(trace: Trace) -> int:
    """Transitions of the captured step: the batch of the first convolution's input."""
    first = trace.ops[0]
    return int(trace.tensors[first.operands[0]].shape[0])
