"""Records of training runs survive JSON, and figures that no run has are refused by their place."""

import json
from math import isnan
from typing import Any

import pytest

from acf.errors import ReportError
from acf.metrics import TrainingRecord
from acf.metrics.record import MaskSnapshot

RECORD = TrainingRecord(
    label="sparse",
    test_accuracy=0.9,
    weight_sparsity=0.5,
    losses=(1.0, 0.5),
    test_accuracies=((1, 0.8), (2, 0.9)),
    moved_blocks=((1, 3),),
    seconds=2.0,
    test_seconds=(1.0, 2.0),
    masks=(MaskSnapshot.of(1, "fc", [[True, False], [True, True]]),),
)


def test_a_record_survives_json() -> None:
    assert TrainingRecord.from_dict(json.loads(json.dumps(RECORD.to_dict()))) == RECORD


def test_a_loss_that_is_no_number_any_more_is_null_in_json() -> None:
    values = RECORD.to_dict() | {"losses": [1.0, None]}
    first, last = TrainingRecord.from_dict(values).losses
    assert first == 1.0
    assert isnan(last)


MASK = {"step": 1, "layer": "fc", "rows": 2, "columns": 2, "packed": "b0"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"losses": ["1"]}, r"losses\.0 is '1' and no finite number"),
        ({"losses": 3}, "losses is 3 and no list"),
        ({"test_accuracy": 2.67}, r"test_accuracy 2\.67 is no share; give one in \[0, 1\]"),
        ({"weight_sparsity": -0.5}, r"weight_sparsity -0\.5 is no share"),
        ({"moved_blocks": [[1, 2, 3]]}, r"moved_blocks\.0 has 3 entries and not 2"),
        ({"seconds": float("inf")}, "seconds is inf and no finite number"),
        ({"colour": "red"}, "colour is no field of a TrainingRecord"),
        ({"masks": [MASK | {"packed": "xy"}]}, "mask of 'fc' is not hexadecimal digits"),
        ({"masks": [MASK | {"rows": 10**9}]}, "need 500000000 hexadecimal digits and not 2"),
    ],
)
def test_a_figure_that_no_run_has_is_refused_by_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ReportError, match=message):
        TrainingRecord.from_dict(RECORD.to_dict() | change)
