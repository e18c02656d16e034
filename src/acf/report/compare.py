"""Results side by side: names that tell machines apart, and each beside its baseline."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, count

from acf.columns import RATIO, SHARE, si_format
from acf.metrics import TrainingRecord
from acf.sim.comparison import Comparison
from acf.sim.result import Result


def written_si(value: float, unit: str) -> str:
    """``value`` with an SI prefix, micro as its own sign.

    >>> written_si(0.00025, "J")
    '250 µJ'
    """
    return si_format(unit).page_text(value)


def percent(share: float) -> str:
    """A share of one as percent.

    >>> percent(0.9042)
    '90.4 %'
    """
    return SHARE.page_text(share)


def times(ratio: float) -> str:
    """A speedup as it is written: two digits and the multiplication sign."""
    return RATIO.page_text(ratio)


def machine(result: Result) -> str:
    """Clock and technology node, as they stand beside every number."""
    return f"{written_si(result.clock_hz, 'Hz')}, {result.technology_nm} nm"


def phase_name(phase: str) -> str:
    """A phase as people write it.

    >>> phase_name("input_grad")
    'input gradient'
    """
    return phase.replace("_grad", " gradient").replace("_", " ")


def in_order(names: Iterable[str]) -> list[str]:
    """Each name once, in order of first appearance."""
    return list(dict.fromkeys(names))


def numbered(name: str) -> Iterable[str]:
    """``name``, then ``name (2)``, ``name (3)`` and so on without end."""
    return chain([name], (f"{name} ({number})" for number in count(2)))


def distinct_results(results: Sequence[Result]) -> list[Result]:
    """The results, renamed so that (architecture, workload) is unique and one name means one machine.

    A sweep that plays one architecture with two clocks becomes ``tensordash`` and ``tensordash (2)``.
    """
    machines: dict[str, tuple[float, int, int]] = {}
    seen: set[tuple[str, str]] = set()
    renamed = []
    for result in results:
        key = (result.clock_hz, result.technology_nm, result.macs_per_cycle)
        name = next(
            candidate
            for candidate in numbered(result.architecture)
            if machines.get(candidate, key) == key and (candidate, result.workload) not in seen
        )
        machines[name] = key
        seen.add((name, result.workload))
        renamed.append(replace(result, architecture=name))
    return renamed


def distinct_records(training: Sequence[TrainingRecord]) -> list[TrainingRecord]:
    """The records, renamed so that no two share a label."""
    seen: set[str] = set()
    renamed = []
    for record in training:
        label = next(candidate for candidate in numbered(record.label) if candidate not in seen)
        seen.add(label)
        renamed.append(replace(record, label=label))
    return renamed


def comparisons(results: Sequence[Result]) -> list[Comparison | None]:
    """Per result, the comparison with its baseline: the first result of the same network.

    Two results are of the same network where their operations have the same names and phases. None for a baseline
    itself, and where a step took no cycles.
    """
    baselines: dict[frozenset[tuple[str, str]], Result] = {}
    compared: list[Comparison | None] = []
    for result in results:
        baseline = baselines.setdefault(frozenset((op.name, op.phase) for op in result.ops), result)
        known = baseline is not result and result.cycles and baseline.cycles
        compared.append(Comparison(result, baseline) if known else None)
    return compared


def spans_decades(values: Iterable[float]) -> bool:
    """Whether a linear axis would hide the small ones: the largest is 30 times the smallest or more.

    >>> spans_decades([1e-6, 2e-5]), spans_decades([1e-6, 1e-3])
    (False, True)
    """
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) >= 30 * min(positive)
