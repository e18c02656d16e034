"""The bar charts of a report: time, speedup, MAC slots, energy and cycles by phase.

Results are expected with one name per machine, as `acf.report.compare.distinct_results` gives them.
"""

from collections import Counter
from collections.abc import Sequence

import plotly.graph_objects as go

from acf.report.bars import Series, bars_by_workload, totals
from acf.report.compare import (
    comparisons,
    in_order,
    machine,
    percent,
    phase_name,
    spans_decades,
    times,
    written_si,
)
from acf.report.style import (
    EFFECTUAL_COLOUR,
    ENERGY,
    REFERENCE_COLOUR,
    SPEEDUP_COLOUR,
    STALLS,
    axis_unit,
    bar_marker,
    hover_text,
    named_marker,
)
from acf.sim.result import Result

VISIBLE_SHARE = 0.005
"""Parts below this share of every bar are drawn together, so that every entry of a legend can be seen."""

LABEL_SHARE = 0.12
"""Share of a bar from which its percentage fits inside."""


def time_figure(results: Sequence[Result]) -> go.Figure:
    """Seconds of one whole training step; a logarithmic axis where they span decades."""
    seconds = [result.step_seconds for result in results]
    unit = axis_unit(seconds, "s")
    labels = [written_si(value, "s") for value in seconds]
    series = Series(
        name="time",
        marker=bar_marker(0),
        values=[value / unit.factor for value in seconds],
        hovers=[_hover(result, label) for result, label in zip(results, labels, strict=True)],
        labels=labels,
    )
    return bars_by_workload(results, [series], f"time per step ({unit.name})", logarithmic=spans_decades(seconds))


def speedup_figure(results: Sequence[Result]) -> go.Figure:
    """Speedup of whole steps over the baseline, which is left out; a dashed line marks equal speed."""
    known = [compared for compared in comparisons(results) if compared is not None]
    ratios = [compared.speedup for compared in known]
    series = Series(
        name="speedup",
        marker={"color": SPEEDUP_COLOUR},
        values=ratios,
        hovers=[
            _hover(one.result, f"{times(one.speedup)} over {one.baseline.architecture} on {one.baseline.workload}")
            for one in known
        ],
        labels=[times(ratio) for ratio in ratios],
    )
    figure = bars_by_workload(
        [compared.result for compared in known],
        [series],
        "times as fast",
        logarithmic=spans_decades(ratios),
    )
    return figure.add_vline(x=1, line={"dash": "dash", "width": 1.5, "color": REFERENCE_COLOUR})


def slots_figure(results: Sequence[Result]) -> go.Figure:
    """Where MAC slots go, in percent: the effectual ones and every lost reason, stacked."""
    effectual = Series(
        name="effectual",
        marker={"color": EFFECTUAL_COLOUR},
        values=[100 * result.utilization for result in results],
        hovers=[_hover(result, f"effectual: {percent(result.utilization)} of MAC slots") for result in results],
        labels=[percent(result.utilization) if result.utilization > LABEL_SHARE else "" for result in results],
        label_position="inside",
    )
    shares = [
        {reason: cycles / result.cycles for reason, cycles in result.stalls.items()} if result.cycles else {}
        for result in results
    ]
    parts = _visible_parts(shares)
    lost = [
        Series(
            name=f"lost: {reason.replace('_', ' ')}",
            marker=named_marker(reason, STALLS),
            values=[100 * share for share in values],
            hovers=[
                _hover(result, f"lost: {reason.replace('_', ' ')}: {percent(share)} of MAC slots")
                for result, share in zip(results, values, strict=True)
            ],
            labels=[],
        )
        for reason, values in parts.items()
    ]
    figure = bars_by_workload(results, [effectual, *lost], "share of MAC slots (%)", stacked=True)
    return figure.update_xaxes(range=[0, 100])


def energy_figure(results: Sequence[Result]) -> go.Figure:
    """Joules of one training step by component, stacked; the total stands behind each bar."""
    totals_j = [result.energy_j for result in results]
    unit = axis_unit(totals_j, "J")
    shares = [
        {name: joules / total for name, joules in result.energy_breakdown_j.items()} if total else {}
        for result, total in zip(results, totals_j, strict=True)
    ]
    series = []
    for component, values in _visible_parts(shares).items():
        joules = [share * total for share, total in zip(values, totals_j, strict=True)]
        hovers = [
            _hover(result, f"{component}: {written_si(value, 'J')}")
            for result, value in zip(results, joules, strict=True)
        ]
        marker = named_marker(component, ENERGY)
        series.append(Series(component, marker, [value / unit.factor for value in joules], hovers, []))
    series.append(totals([written_si(total, "J") for total in totals_j]))
    return bars_by_workload(results, series, f"energy per step ({unit.name})", stacked=True)


def phases_figure(results: Sequence[Result]) -> go.Figure:
    """Cycles of each phase of the step, side by side; a logarithmic axis where they span decades."""
    cycles = [_cycles_by_phase(result) for result in results]
    all_cycles = [value for phases in cycles for value in phases.values()]
    unit = axis_unit(all_cycles, "")
    series = [
        Series(
            name=phase_name(phase),
            marker=bar_marker(index),
            values=[phases[phase] / unit.factor for phases in cycles],
            hovers=[
                _hover(result, f"{phase_name(phase)}: {phases[phase]:,} cycles")
                for result, phases in zip(results, cycles, strict=True)
            ],
            labels=[written_si(phases[phase], "") for phases in cycles],
        )
        for index, phase in enumerate(in_order(name for phases in cycles for name in phases))
    ]
    title = f"cycles ({unit.name})" if unit.name else "cycles"
    return bars_by_workload(results, series, title, logarithmic=spans_decades(all_cycles))


def _visible_parts(shares: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """The share of every name in every result; names too small to see in any of them are added up as "other"."""
    names = in_order(name for each in shares for name in each)
    small = [name for name in names if all(each.get(name, 0.0) < VISIBLE_SHARE for each in shares)]
    parts = {name: [each.get(name, 0.0) for each in shares] for name in names if name not in small}
    rest = [sum(each.get(name, 0.0) for name in small) for each in shares]
    return parts | {"other": rest} if any(rest) else parts


def _hover(result: Result, *lines: str) -> str:
    return hover_text(f"{result.architecture} on {result.workload}", *lines, machine(result))


def _cycles_by_phase(result: Result) -> Counter[str]:
    cycles: Counter[str] = Counter()
    for op in result.ops:
        cycles[op.phase] += op.cycles
    return cycles
