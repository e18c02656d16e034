"""The axes of a sweep, as the command line writes them."""

import pytest

from acf.errors import SweepError
from acf.sweep import Axes, parse_settings


def test_parameters_that_share_work_change_least_often() -> None:
    axes = Axes({"queue_packets": (2, 4), "tile": (8, 16)})
    points = list(axes.grid(slowest=("tile",)))
    assert [point["tile"] for point in points] == [8, 8, 16, 16]
    assert list(points[0]) == ["queue_packets", "tile"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["mesh_columns"], "is not FIELD=VALUE,VALUE"),
        (["tile=8", "tile=16"], "--set tile is given twice"),
    ],
)
def test_what_is_no_setting_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(SweepError, match=message):
        parse_settings(texts)


@pytest.mark.parametrize(
    ("values", "message"),
    [({}, "varies nothing"), ({"tile": ()}, "tile has no value"), ({"tile": (8, 8)}, "tile has a value twice")],
)
def test_axes_without_points_or_with_a_point_twice_are_refused(
    values: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(SweepError, match=message):
        Axes(values)
