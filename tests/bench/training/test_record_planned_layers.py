"""Planned layers of a record, as a file may hold them."""

import pytest

from acf.bench.training.record import TrainingComparison, comparison_from_values
from acf.bench.training.run import RunLength, TrainingRun
from acf.bench.training.task import Task
from acf.bench.training.variant import Variant
from acf.errors import FileError, SparsityError


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"density": 1.5}, "density 1.5 of layer 'fc' is outside"),
        ({"density": None}, "planned_layers.0.density is None"),
        ({"block": 0}, "block 0 of layer 'fc' is no positive integer"),
        ({"dense_seconds": "1"}, "planned_layers.0.dense_seconds is '1' and no finite number"),
        ({"extra": 1}, "planned_layers.0.extra is no field of a PlannedLayer"),
        (None, "planned_layers.0 is None and no object with fields"),
    ],
)
def test_a_planned_layer_that_no_plan_has_is_refused_by_its_place(
    change: dict[str, object] | None, reason: str, text_task: Task
) -> None:
    run = TrainingRun("dense", 0, 1, 1.0, 0.0, 1.0, 0.0, 0.5, 0.0, 1, 0, None, None, "")
    comparison = TrainingComparison(text_task.spec, RunLength(steps=1), False, [{}], [run])
    values = comparison.to_dict()
    layer = {"name": "fc", "density": 0.5, "dense_seconds": 1.0, "planned_seconds": 1.0, "reason": "", "block": 16}
    values["runs"][0]["planned_layers"] = [layer]
    assert comparison_from_values(values, "a.json").runs[0].planned_layers[0].block == 16
    values["runs"][0]["planned_layers"] = [None if change is None else layer | change]
    with pytest.raises(FileError, match=rf"a.json is no record .*{reason}.*; pass another path"):
        comparison_from_values(values, "a.json")


@pytest.mark.parametrize("setting", ["speedup=nan", "speedup=0", "speedup=-2", "speedup=1e300", "plan_family=vit"])
def test_a_variant_refuses_a_setting_that_its_plan_would_refuse(setting: str) -> None:
    with pytest.raises(SparsityError, match=r"speedup=\S+ in variant|family 'vit' is not one of"):
        Variant.parse(f"static-90/distribution=cost/{setting}")
