"""Plain values become dataclasses only where every one of them is of the right kind."""

from dataclasses import dataclass
from typing import Any

import pytest

from acf.schema import read_as


@dataclass(frozen=True)
class Point:
    step: int
    quality: float | None = None


@dataclass(frozen=True)
class Run:
    name: str
    finished: bool
    curve: tuple[Point, ...] = ()
    pair: tuple[int, float] = (0, 0.0)
    figures: dict[str, float] | None = None


WHOLE: dict[str, Any] = {"name": "a", "finished": True, "curve": [{"step": 1}], "pair": [1, 2], "figures": {"x": 1}}


def test_values_of_the_right_kinds_are_read() -> None:
    assert read_as(Run, WHOLE) == Run("a", True, (Point(1),), (1, 2.0), {"x": 1.0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 1}, "name is 1 and no text"),
        ({"finished": 1}, "finished is 1 and neither true nor false"),
        ({"curve": {"step": 1}}, "curve is {'step': 1} and no list"),
        ({"curve": [{"step": True}]}, "curve.0.step is True and no integer"),
        ({"curve": [{"step": 10**30}]}, "curve.0.step is an integer of more than 64 bits and no integer"),
        ({"curve": [{"step": 1, "quality": float("nan")}]}, "curve.0.quality is nan and no finite number"),
        ({"curve": [{}]}, "curve.0.step is missing"),
        ({"curve": [3]}, "curve.0 is 3 and no object with fields"),
        ({"pair": [1]}, "pair has 1 entries and not 2"),
        ({"figures": [1]}, r"figures is \[1\] and no object with fields"),
        ({"more": 1}, "more is no field of a Run"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_as(Run, WHOLE | change)
