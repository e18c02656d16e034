"""Names of points: none overlap, and a point without room has none."""

from itertools import combinations

import numpy as np

from acf.report.labels import PLACES, _beside, _is_inside, _overlap, placed_labels


def test_no_two_names_overlap_and_all_lie_inside_the_plot() -> None:
    random = np.random.default_rng(0)
    points = [(float(x), float(y), f"machine {place}") for place, (x, y) in enumerate(random.random((30, 2)))]
    labels = placed_labels(points)
    boxes = [
        _beside(x, y, name, *PLACES[label.place])
        for (x, y, name), label in zip(points, labels, strict=True)
        if label.text
    ]
    assert 5 < len(boxes) < len(points)
    assert all(_is_inside(box) for box in boxes)
    assert not any(_overlap(one, other) for one, other in combinations(boxes, 2))


def test_a_name_keeps_off_the_discs_of_other_points() -> None:
    (label, _) = placed_labels([(0.5, 0.5, "a"), (0.5, 0.56, "b")])
    assert label.place == "bottom center"
