"""The ablations: every one runs, over seeds, goes on where it stopped, and survives a point that fails."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import acf.sim
from acf.bench.fabric import ablation_runs
from acf.bench.fabric.ablation import ABLATIONS, Ablation, Variation
from acf.bench.fabric.ablation_figures import regrow_figures, step_figures
from acf.bench.fabric.ablation_runs import SAMPLES, AblationOptions, chosen_ablations, markdown, run_ablation
from acf.bench.fabric.workloads import WORKLOADS, StepSpec, layer_traces
from acf.errors import ArchitectureError
from acf.metrics import AblationPoint, AblationRecord
from acf.sim.fabric import AdaptiveFabric

TINY = AblationOptions(examples=16, sparsities=(0.9,), seeds=2)
ATTENTION = ("encoder.0.self_attention.query",)
FABRIC = acf.sim.spec("acf-512")
assert isinstance(FABRIC, AdaptiveFabric)


def silent(what: str, share: float) -> None:
    assert 0 <= share <= 1


@pytest.fixture
def one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single 512 x 512 layer stands for the network."""
    monkeypatch.setitem(SAMPLES, "transformer-base", ATTENTION)


@pytest.mark.parametrize("name", ABLATIONS)
@pytest.mark.usefixtures("one_layer")
def test_every_ablation_measures_all_it_announces_at_every_place(name: str, tmp_path: Path) -> None:
    record = run_ablation(name, TINY, tmp_path, silent)
    assert record.failed == 0
    places = {(variation.series, variation.value) for variation in ABLATIONS[name].vary(FABRIC, TINY.step(0.9, 0))}
    assert {(row.series, row.value) for row in record.rows} == places
    for row in record.rows:
        assert set(row.spreads) >= set(record.shown) - {"pays_after_steps"}
        assert row.spreads["cycles" if "cycles" in row.spreads else "seconds"].seeds == 2
    assert (tmp_path / f"{name}.md").read_text() == markdown(record)
    assert AblationRecord.from_dict(json.loads((tmp_path / f"{name}.json").read_text())["data"]) == record


@pytest.mark.usefixtures("one_layer")
def test_slots_of_every_point_are_used_or_lost_for_a_named_reason(tmp_path: Path) -> None:
    for point in run_ablation("interconnect", replace(TINY, seeds=1), tmp_path, silent).points:
        shares = [share for name, share in point.figures.items() if name.startswith("lost_")]
        assert sum(shares) + point.figures["utilization"] == pytest.approx(1.0)


@pytest.mark.usefixtures("one_layer")
def test_the_baseline_has_speedup_one_and_scaling_counts_the_macs(tmp_path: Path) -> None:
    points = run_ablation("scus", replace(TINY, seeds=1), tmp_path, silent).points
    smallest, largest = points[0].figures, next(point.figures for point in points if point.value == "16,384")
    assert smallest["speedup"] == smallest["scaling"] == 1.0
    assert largest["scaling"] == pytest.approx(smallest["seconds"] / largest["seconds"] / 256)


def varied(*variations: Variation) -> Ablation:
    return replace(ABLATIONS["block"], vary=lambda fabric, step: list(variations), baseline=("a", "1"))


@pytest.mark.usefixtures("one_layer")
def test_a_point_that_fails_is_reported_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad_block, bad_tile = Variation("a", "2", step={"block": 48}), Variation("a", "3", {"tile": 5})
    monkeypatch.setitem(ABLATIONS, "block", varied(bad_block, bad_tile, Variation("a", "1")))
    record = run_ablation("block", replace(TINY, seeds=1), tmp_path, silent)
    assert record.failed == 2
    assert "block 48 does not divide" in record.points[0].failure
    assert "tile 5 is not one of" in record.points[1].failure
    assert record.points[2].figures["speedup"] == 1.0
    assert "Failed: a, 2, 90%: block 48 does not divide" in (tmp_path / "block.md").read_text()


@pytest.mark.usefixtures("one_layer")
def test_interrupted_work_goes_on_with_the_points_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    def stopping(fabric: AdaptiveFabric, step: StepSpec, prefixes: tuple[str, ...]) -> dict[str, float]:
        measured.append(fabric.lanes)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return {"cycles": 1.0, "seconds": 1.0, "macs": 1.0}

    places = [Variation("a", str(lanes), {"lanes": lanes}) for lanes in (1, 2, 4, 8)]
    monkeypatch.setitem(ABLATIONS, "block", replace(varied(*places), figures=stopping))
    with pytest.raises(KeyboardInterrupt):
        run_ablation("block", replace(TINY, seeds=1), tmp_path, silent)
    record = run_ablation("block", replace(TINY, seeds=1), tmp_path, silent)
    assert measured == [1, 2, 4, 4, 8]
    assert len(record.points) == 4
    run_ablation("block", replace(TINY, seeds=1, examples=32), tmp_path, silent)
    assert len(measured) == 5 + 4, "other settings are measured anew"


@pytest.mark.usefixtures("one_layer")
def test_a_record_that_is_not_one_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ABLATIONS, "block", varied(Variation("a", "1")))
    (tmp_path / "block.json").write_text('{"ablation": "block", "poi')
    assert run_ablation("block", replace(TINY, seeds=1), tmp_path, silent).failed == 0


@pytest.mark.parametrize("layer", ["query", "value"])  # attention comes with the value layer
def test_without_a_move_the_kept_mapping_costs_the_same_as_a_new_one(layer: str) -> None:
    figures = regrow_figures(FABRIC, StepSpec("transformer-base", 64, 0.9), (f"encoder.0.self_attention.{layer}",))
    assert figures["stale_cycles"] == figures["cycles"]
    assert figures["gain"] < 1, "only the controller's cycles differ"


def test_moved_blocks_are_as_many_and_elsewhere() -> None:
    def weights(moved: float) -> set[int]:
        (trace,) = layer_traces(StepSpec("transformer-base", 1, 0.9, moved=moved), ATTENTION)
        words = trace.tensors["encoder.0.self_attention.query.weight"]
        return set(words.to_bool().reshape(-1).nonzero()[0].tolist())

    before, after = weights(0.0), weights(0.3)
    assert len(before) == len(after)
    assert len(before & after) == pytest.approx(0.7 * len(before), abs=256)


def test_uneven_rows_keep_the_same_number_of_blocks_less_evenly() -> None:
    def row_counts(skew: float) -> list[int]:
        (trace,) = layer_traces(StepSpec("transformer-base", 1, 0.9, skew=skew), ATTENTION)
        rows = trace.tensors["encoder.0.self_attention.query.weight"].to_bool().reshape(32, -1).sum(axis=1)
        return sorted(rows.tolist())

    even, uneven = row_counts(0.0), row_counts(1.0)
    assert sum(even) == sum(uneven)
    assert uneven[-1] > 1.5 * even[-1]


def test_more_units_take_fewer_cycles_for_the_same_step() -> None:
    step = StepSpec("transformer-base", 256, 0.9)
    small = step_figures(replace(FABRIC, mesh_rows=2, mesh_columns=4), step, ATTENTION)
    assert step_figures(FABRIC, step, ATTENTION)["cycles"] < small["cycles"] / 4


def test_samples_are_layers_of_their_networks() -> None:
    for network, prefixes in SAMPLES.items():
        names = [layer.name for layer in WORKLOADS[network]()]
        for prefix in prefixes:
            assert any(name.startswith(prefix) for name in names)


def test_unknown_ablations_machines_and_empty_sweeps_are_refused_in_one_line() -> None:
    assert chosen_ablations([]) == chosen_ablations(["all"]) == list(ABLATIONS)
    with pytest.raises(ArchitectureError, match="ablation 'blocks' is not one of block, regrow"):
        chosen_ablations(["blocks"])
    with pytest.raises(ArchitectureError, match="tensordash is no fabric"):
        AblationOptions(on="tensordash")
    with pytest.raises(ArchitectureError, match="0 sparsities and 3 seeds give no point"):
        AblationOptions(sparsities=())
    with pytest.raises(ArchitectureError, match="network 'vgg' is not one of"):
        AblationOptions(network="vgg")


def test_conditions_name_machine_clock_node_layers_and_seeds() -> None:
    told = replace(TINY, examples=1024).conditions
    for part in ("acf-512", "512 MACs at 250 MHz", "65 nm", "encoder.0.*", "1,024 tokens", "2 seeds"):
        assert part in told
    assert ablation_runs.AblationOptions(network="resnet50", whole=True).conditions.count("all layers") == 1


def test_mean_and_deviation_are_over_the_seeds_of_one_place() -> None:
    points = tuple(AblationPoint("a", "1", 0.9, seed, "", {"cycles": 10.0 + seed}) for seed in range(3))
    failed = AblationPoint("a", "1", 0.9, 3, "", failure="broken")
    record = AblationRecord("block", "t", "x", "n", "c", ("cycles",), (), (*points, failed))
    (row,) = record.rows
    assert (row.spreads["cycles"].mean, row.spreads["cycles"].deviation) == (11.0, 1.0)
    assert row.failures == ("broken",)
