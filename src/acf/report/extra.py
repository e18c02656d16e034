"""Sections that other packages add to the page."""

from dataclasses import dataclass

import plotly.graph_objects as go

from acf.columns import PageTable


@dataclass(frozen=True, eq=False)
class ExtraPlot:
    """A figure with its heading and the sentence that says how to read it."""

    title: str
    caption: str
    figure: go.Figure


@dataclass(frozen=True)
class ExtraTable:
    """A table with its heading."""

    title: str
    table: PageTable


@dataclass(frozen=True)
class ExtraSection:
    """A section of the page: a heading, a sentence, plots and tables that can be unfolded."""

    title: str
    text: str
    plots: tuple[ExtraPlot, ...] = ()
    tables: tuple[ExtraTable, ...] = ()
