"""The HTML page of a report: plots with their captions, tables, and plotly itself.

``plotly-cartesian.min.js`` is plotly.js's own partial bundle with the charts of two axes, a third of the whole; its
version is the one that the Python package plotly 7.1 was made for.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined

from acf.columns import PAGE, page_table, shown_in
from acf.metrics import MEASURES, AblationRecord, TrainingRecord
from acf.report import curves, plots, sections
from acf.report.ablations import ablation_figure, ablation_tables
from acf.report.columns import summary_columns, summary_rows, training_columns
from acf.report.compare import comparisons, distinct_records, distinct_results, in_order, machine
from acf.report.extra import ExtraSection
from acf.report.heat_map import heat_map_width_px, layer_time_figure, utilization_figure
from acf.report.masks import mask_sections
from acf.report.points import pareto_figure, roofline_figure
from acf.sim.result import Result

HALF_PAGE_PX = 600


@dataclass(frozen=True)
class _Plot:
    """A figure with its heading and the sentence that says how to read it."""

    title: str
    caption: str
    figure: go.Figure
    min_width_px: int = 300

    @property
    def wide(self) -> bool:
        """Whether the figure needs the whole width of the page."""
        return self.min_width_px > HALF_PAGE_PX

    @property
    def height_px(self) -> int:
        """Room the page keeps free for the figure while it loads."""
        return int(self.figure.layout.height)

    @property
    def spec(self) -> Any:
        """The figure as plain values; NaN has become None."""
        return json.loads(self.figure.to_json())


def page_html(
    results: Sequence[Result],
    training: Sequence[TrainingRecord],
    ablations: Sequence[AblationRecord],
    title: str,
    extra: Sequence[ExtraSection] = (),
) -> str:
    """The page as HTML, with plotly and all data inside."""
    results = distinct_results(results)
    environment = Environment(
        loader=PackageLoader("acf.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    records = distinct_records(training)
    return environment.get_template("report.html.jinja").render(
        title=title,
        baseline=_baseline(results),
        headlines=sections.headlines(results, records),
        summary=page_table(shown_in(PAGE, summary_columns(training)), summary_rows(results, training)),
        training=page_table(training_columns(records), records),
        result_plots=list(_result_plots(results)) if results else [],
        heat_maps=list(_heat_maps(results)),
        training_plots=list(_training_plots(records)),
        masks=mask_sections(records),
        ablations=ablation_tables(ablations),
        ablation_plots=[list(_ablation_plots(record)) for record in ablations],
        extra=extra,
        extra_plots=[[_Plot(each.title, each.caption, each.figure) for each in section.plots] for section in extra],
        sections=sections.result_sections(results),
        notes=sections.note_groups(results),
        plotlyjs=_own_file("plotly-cartesian.min.js"),
        css=_own_file("page.css"),
        script=_own_file("page.js"),
    )


def _own_file(name: str) -> str:
    return files("acf.report").joinpath(name).read_text(encoding="utf-8")


def _baseline(results: Sequence[Result]) -> str:
    """The baseline of all comparisons in words, where there is one for all."""
    baselines = in_order(
        f"{compared.baseline.architecture} on {compared.baseline.workload}"
        for compared in comparisons(results)
        if compared is not None
    )
    return baselines[0] if len(baselines) == 1 else ""


def _result_plots(results: Sequence[Result]) -> Iterator[_Plot]:
    yield _Plot("Time per step", "Products and vector work. Shorter is better.", plots.time_figure(results))
    if any(comparisons(results)):
        over = _baseline(results) or "the first result of the same network"
        caption = f"Of the whole step, over {over}; the dashed line is equal speed. Longer is better."
        yield _Plot("Speedup", caption, plots.speedup_figure(results))
    yield _Plot(
        "Where MAC slots go",
        "A slot is one multiplier in one cycle. Effectual ones multiply two non-zero operands.",
        plots.slots_figure(results),
    )
    yield _Plot("Energy by component", "Joules of one training step.", plots.energy_figure(results))
    yield _Plot("Cycles by phase", "Forward pass and both gradient products.", plots.phases_figure(results))
    if any(result.energy_j for result in results):
        caption = (
            "Down and left is better; larger discs are larger chips. A ring: another machine is better in all. "
            "Discs without a name show it when you point at them."
        )
        yield _Plot("Time, energy and area", caption, pareto_figure(results))
    if any(op.dram_bytes and op.effectual_macs for result in results for op in result.ops):
        caption = "Each mark is one operation; the dashed line bounds what its machine can do with that traffic."
        yield _Plot("Roofline of every operation", caption, roofline_figure(results))


def _heat_maps(results: Sequence[Result]) -> Iterator[_Plot]:
    for architecture in in_order(result.architecture for result in results):
        members = [result for result in results if result.architecture == architecture]
        width_px = heat_map_width_px(members)
        at = machine(members[0])
        caption = f"U in percent by layer and phase, at {at}."
        yield _Plot(f"{architecture}: utilisation", caption, utilization_figure(members), width_px)
        caption = f"Time by layer and phase at {at}; the colour is the share of all products."
        yield _Plot(f"{architecture}: time", caption, layer_time_figure(members), width_px)


def _training_plots(training: Sequence[TrainingRecord]) -> Iterator[_Plot]:
    if any(record.losses for record in training):
        caption = "Each point is the mean over a centred window of about 2\N{NO-BREAK SPACE}% of the run's steps."
        yield _Plot("Training loss", caption, curves.loss_figure(training))
    if any(record.test_accuracies for record in training):
        yield _Plot("Test accuracy", "As measured during training.", curves.accuracy_figure(training))
    for field, (_, name) in curves.COSTS.items():
        if any(getattr(record, field) for record in training):
            title = f"Test accuracy by {name}"
            figure = curves.accuracy_by_cost_figure(training, field)
            yield _Plot(title, "Up and left is better.", figure)
    if any(record.moved_blocks for record in training):
        caption = "Blocks that were dropped here and grown elsewhere, at each topology step."
        yield _Plot("Blocks moved", caption, curves.moved_blocks_figure(training))


def _ablation_plots(record: AblationRecord) -> Iterator[_Plot]:
    for name in record.plotted:
        measure = MEASURES[name]
        better = "Less" if measure.less_is_better else "More"
        caption = f"{better} is better; bars are deviations over seeds. {record.conditions}."
        yield _Plot(f"{record.title}: {measure.heading}", caption, ablation_figure(record, name))
