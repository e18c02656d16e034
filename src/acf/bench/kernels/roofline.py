"""The roofline: what a kernel reaches, against what arithmetic and memory of this machine allow."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ceilings:
    """What the machine was measured to do: a large dense product, and a large copy (bytes read plus written)."""

    flop_per_s: float
    bytes_per_s: float

    def attainable(self, flop_per_byte: float) -> float:
        """The most that a kernel of this intensity can reach.

        >>> Ceilings(flop_per_s=100.0, bytes_per_s=10.0).attainable(5.0)
        50.0
        """
        return min(self.flop_per_s, flop_per_byte * self.bytes_per_s)


@dataclass(frozen=True)
class RooflinePoint:
    """One measured pass: operations of the present blocks over the bytes it must move at least, and its rate."""

    series: str
    label: str
    flop_per_byte: float
    flop_per_s: float


def roofline_page(points: Sequence[RooflinePoint], ceilings: Ceilings, title: str) -> str:
    """One offline HTML page with the roofline, both axes logarithmic."""
    import plotly.graph_objects as go  # machines that only measure may lack it

    figure = go.Figure()
    reach = [point.flop_per_byte for point in points]
    ridge = ceilings.flop_per_s / ceilings.bytes_per_s
    low, high = min([*reach, ridge]) / 4, max([*reach, ridge]) * 4
    intensities = [low, ridge, high]
    roof = [ceilings.attainable(intensity) for intensity in intensities]
    figure.add_scatter(x=intensities, y=roof, mode="lines", name="measured ceilings", line={"color": "#777777"})
    for series in dict.fromkeys(point.series for point in points):
        members = [point for point in points if point.series == series]
        figure.add_scatter(
            x=[point.flop_per_byte for point in members],
            y=[point.flop_per_s for point in members],
            text=[point.label for point in members],
            mode="markers",
            name=series,
        )
    figure.update_xaxes(type="log", title="operations per byte of operands and result (FLOP/B)")
    figure.update_yaxes(type="log", title="operations of present blocks per second (FLOP/s)", exponentformat="SI")
    figure.update_layout(title=title, template="plotly_white")
    page: str = figure.to_html(include_plotlyjs=True, full_html=True)
    return page
