"""The HTML page of a report: plots with their captions, tables, and plotly itself."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from acf.columns import PAGE, page_table, shown_in
from acf.metrics import MEASURES, AblationRecord, TrainingRecord
from acf.report import plots, sections
from acf.report.ablations import ablation_figure, ablation_tables
from acf.report.columns import TRAINING, summary_columns, summary_rows
from acf.report.compare import distinct_records, distinct_results, has_speedups, in_order, machine
from acf.report.extra import ExtraSection
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
        baseline=results[0].workload if results else "",
        headlines=sections.headlines(results, records),
        summary=page_table(shown_in(PAGE, summary_columns(training)), summary_rows(results, training)),
        training=page_table(shown_in(PAGE, TRAINING), records),
        result_plots=list(_result_plots(results)) if results else [],
        heat_maps=list(_heat_maps(results)),
        training_plots=list(_training_plots(records)),
        ablations=ablation_tables(ablations),
        ablation_plots=[list(_ablation_plots(record)) for record in ablations],
        extra=extra,
        extra_plots=[[_Plot(each.title, each.caption, each.figure) for each in section.plots] for section in extra],
        sections=sections.result_sections(results),
        notes=sections.note_groups(results),
        plotlyjs=get_plotlyjs(),
    )


def _result_plots(results: Sequence[Result]) -> Iterator[_Plot]:
    baseline = results[0].workload
    yield _Plot("Time per step", "Shorter is better.", plots.time_figure(results))
    if has_speedups(results):
        caption = f"Over {baseline} on the same machine; the dashed line is equal speed. Longer is better."
        yield _Plot("Speedup", caption, plots.speedup_figure(results))
    yield _Plot(
        "Where MAC slots go",
        "A slot is one multiplier in one cycle. Effectual ones multiply two non-zero operands.",
        plots.slots_figure(results),
    )
    yield _Plot("Energy by component", "Joules of one training step.", plots.energy_figure(results))
    yield _Plot("Cycles by phase", "Forward pass and both gradient products.", plots.phases_figure(results))


def _heat_maps(results: Sequence[Result]) -> Iterator[_Plot]:
    for architecture in in_order(result.architecture for result in results):
        members = [result for result in results if result.architecture == architecture]
        caption = f"U in percent by layer and phase, at {machine(members[0])}."
        yield _Plot(architecture, caption, plots.utilization_figure(members), plots.heat_map_width_px(members))


def _training_plots(training: Sequence[TrainingRecord]) -> Iterator[_Plot]:
    if any(record.losses for record in training):
        caption = "Each point is the mean over a centred window of about 2\N{NO-BREAK SPACE}% of the run's steps."
        yield _Plot("Training loss", caption, plots.loss_figure(training))
    if any(record.test_accuracies for record in training):
        yield _Plot("Test accuracy", "As measured during training.", plots.accuracy_figure(training))
    if any(record.moved_blocks for record in training):
        caption = "Blocks that were dropped here and grown elsewhere, at each topology step."
        yield _Plot("Blocks moved", caption, plots.moved_blocks_figure(training))


def _ablation_plots(record: AblationRecord) -> Iterator[_Plot]:
    for name in record.plotted:
        measure = MEASURES[name]
        better = "Less" if measure.less_is_better else "More"
        caption = f"{better} is better; bars are deviations over seeds. {record.conditions}."
        yield _Plot(f"{record.title}: {measure.heading}", caption, ablation_figure(record, name))
