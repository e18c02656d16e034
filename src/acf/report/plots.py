"""The figures of a report; each function makes one plotly figure from results or training records.

Results are expected with one name per machine, as `acf.report.compare.distinct_results` gives them.
"""

from collections import Counter
from collections.abc import Sequence

import plotly.graph_objects as go

from acf.report.bars import Series, bars_by_workload, totals
from acf.report.compare import in_order, machine, percent, phase_name, speedups, times, written_si
from acf.report.curves import accuracy_figure, loss_figure, moved_blocks_figure
from acf.report.heat_map import heat_map_width_px, utilization_figure
from acf.report.style import (
    EFFECTUAL_COLOUR,
    LOST_COLOURS,
    REFERENCE_COLOUR,
    SPEEDUP_COLOUR,
    axis_unit,
    bar_marker,
    hover_text,
)
from acf.sim.result import Result

__all__ = [
    "accuracy_figure",
    "energy_figure",
    "heat_map_width_px",
    "loss_figure",
    "moved_blocks_figure",
    "phases_figure",
    "slots_figure",
    "speedup_figure",
    "time_figure",
    "utilization_figure",
]


def time_figure(results: Sequence[Result]) -> go.Figure:
    """Seconds of one training step, bars grouped by workload."""
    unit = axis_unit((result.seconds for result in results), "s")
    labels = [written_si(result.seconds, "s") for result in results]
    series = Series(
        name="time",
        marker=bar_marker(0),
        values=[result.seconds / unit.factor for result in results],
        hovers=[_hover(result, label) for result, label in zip(results, labels, strict=True)],
        labels=labels,
    )
    return bars_by_workload(results, [series], f"time per step ({unit.name})")


def speedup_figure(results: Sequence[Result]) -> go.Figure:
    """Speedup over the first workload on the same architecture; a dashed line marks equal speed."""
    ratios = zip(results, speedups(results), strict=True)
    known = [(result, ratio) for result, ratio in ratios if ratio is not None]
    over = f"over {results[0].workload} on the same machine"
    series = Series(
        name="speedup",
        marker={"color": SPEEDUP_COLOUR},
        values=[ratio for _, ratio in known],
        hovers=[_hover(result, times(ratio), over) for result, ratio in known],
        labels=[times(ratio) for _, ratio in known],
    )
    figure = bars_by_workload([result for result, _ in known], [series], "times as fast")
    return figure.add_vline(x=1, line={"dash": "dash", "width": 1.5, "color": REFERENCE_COLOUR})


def slots_figure(results: Sequence[Result]) -> go.Figure:
    """Where MAC slots go, in percent: the effectual ones and every lost reason, stacked."""
    effectual = Series(
        name="effectual",
        marker={"color": EFFECTUAL_COLOUR},
        values=[100 * result.utilization for result in results],
        hovers=[_hover(result, f"effectual: {percent(result.utilization)} of MAC slots") for result in results],
        labels=[percent(result.utilization) for result in results],
        label_position="inside",
    )
    reasons = in_order(reason for result in results for reason in result.stalls)
    lost = [_lost_series(results, reason, index) for index, reason in enumerate(reasons)]
    figure = bars_by_workload(results, [effectual, *lost], "share of MAC slots (%)", stacked=True)
    return figure.update_xaxes(range=[0, 100])


def energy_figure(results: Sequence[Result]) -> go.Figure:
    """Joules of one training step by component, stacked; the total stands behind each bar."""
    breakdowns = [result.energy_breakdown_j for result in results]
    unit = axis_unit((result.energy_j for result in results), "J")
    series = [
        Series(
            name=component,
            marker=bar_marker(index),
            values=[breakdown.get(component, 0.0) / unit.factor for breakdown in breakdowns],
            hovers=[
                _hover(result, f"{component}: {written_si(breakdown.get(component, 0.0), 'J')}")
                for result, breakdown in zip(results, breakdowns, strict=True)
            ],
            labels=[],
        )
        for index, component in enumerate(in_order(name for breakdown in breakdowns for name in breakdown))
    ]
    series.append(totals([written_si(result.energy_j, "J") for result in results]))
    return bars_by_workload(results, series, f"energy per step ({unit.name})", stacked=True)


def phases_figure(results: Sequence[Result]) -> go.Figure:
    """Cycles of each phase of the step, side by side."""
    cycles = [_cycles_by_phase(result) for result in results]
    unit = axis_unit((value for phases in cycles for value in phases.values()), "")
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
    return bars_by_workload(results, series, f"cycles ({unit.name})" if unit.name else "cycles")


def _hover(result: Result, *lines: str) -> str:
    return hover_text(f"{result.architecture} on {result.workload}", *lines, machine(result))


def _lost_series(results: Sequence[Result], reason: str, index: int) -> Series:
    shares = [result.stalls.get(reason, 0.0) / result.cycles if result.cycles else 0.0 for result in results]
    return Series(
        name=f"lost: {reason}",
        marker=bar_marker(index, LOST_COLOURS),
        values=[100 * share for share in shares],
        hovers=[
            _hover(result, f"lost: {reason}: {percent(share)} of MAC slots")
            for result, share in zip(results, shares, strict=True)
        ],
        labels=[],
    )


def _cycles_by_phase(result: Result) -> Counter[str]:
    cycles: Counter[str] = Counter()
    for op in result.ops:
        cycles[op.phase] += op.cycles
    return cycles
