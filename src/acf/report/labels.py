"""Where the names of points go, so that no two overlap on a narrow page."""

from collections.abc import Sequence
from dataclasses import dataclass

AREA_PX = (230, 330)
"""Width and height of a plot on a page of 400 pixels."""
CHARACTER_PX, LINE_PX, MARKER_PX = 7.0, 15.0, 24.0
"""Size of a character and a disc, at most."""

PLACES = {
    "top center": (0.0, 1.0),
    "bottom center": (0.0, -1.0),
    "middle right": (1.0, 0.0),
    "middle left": (-1.0, 0.0),
}
"""Direction of a name from its point, by plotly's word for it; in the order of preference."""

Box = tuple[float, float, float, float]
"""Left, bottom, right and top in pixels."""


@dataclass(frozen=True)
class Label:
    """A name and its place beside the point; no ``text`` where there is no room."""

    text: str
    place: str = "top center"


def placed_labels(points: Sequence[tuple[float, float, str]]) -> list[Label]:
    """A label for every point ``(x, y, name)``, with x and y in [0, 1] of the plot; earlier points choose first.

    >>> [label.text for label in placed_labels([(0.5, 0.5, "a"), (0.5, 0.5, "b"), (0.1, 0.9, "c")])]
    ['a', 'b', 'c']
    >>> placed_labels([(0.5, 0.5, "long name")] * 9)[-1].text
    ''
    """
    discs = list({_around(x, y, MARKER_PX, MARKER_PX) for x, y, _ in points})
    taken: list[Box] = []
    labels = []
    for x, y, name in points:
        own = _around(x, y, MARKER_PX, MARKER_PX)
        others = [*taken, *(disc for disc in discs if disc != own)]
        label = Label("")
        for place, (right, up) in PLACES.items():
            box = _beside(x, y, name, right, up)
            if _is_inside(box) and not any(_overlap(box, other) for other in others):
                taken.append(box)
                label = Label(name, place)
                break
        labels.append(label)
    return labels


def _around(x: float, y: float, width: float, height: float) -> Box:
    centre_x, centre_y = x * AREA_PX[0], y * AREA_PX[1]
    return centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2


def _beside(x: float, y: float, name: str, right: float, up: float) -> Box:
    width = CHARACTER_PX * len(name)
    left, bottom, end, top = _around(x, y, width, LINE_PX)
    along = right * (width + MARKER_PX) / 2
    upward = up * (LINE_PX + MARKER_PX) / 2
    return left + along, bottom + upward, end + along, top + upward


def _is_inside(box: Box) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= AREA_PX[0] and box[3] <= AREA_PX[1]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
