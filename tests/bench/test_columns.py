"""The tables of the benches: every registry fills its cells from the rows, with the words and signs people read."""

from dataclasses import replace

from rich.console import Console
from rich.table import Table

from acf.bench import columns
from acf.bench.epochs.figures import EpochFigures
from acf.bench.fabric.comparison import PlayedStep
from acf.bench.simulators import SimulatorTiming
from acf.bench.traces import TraceFigures
from acf.columns import Column, records

FIGURES = TraceFigures(
    label="vgg16: 8 examples",
    dense_macs=1000,
    zeros={"activation": 0.5, "gradient": 0.25},
    idle_macs={"forward": 0.6},
    tensordash={"forward": 1.5, "input_grad": 1.25, "weight_grad": 1.75, "compute": 1.6, "step": 1.4},
    spartann=2.0,
    fabric=3.0,
)

PRODUCT = {"name": "fc", "phase": "forward", "cycles": 9, "utilization": 0.5, "most_lost_to": "", "most_lost": 0.0}


def played(machine: str, seconds: float) -> PlayedStep:
    return PlayedStep(
        network="resnet50",
        sparsity=0.9,
        machine=machine,
        cycles=1000,
        seconds=seconds,
        step_seconds=2 * seconds,
        step_seconds_bounds=(seconds, 3 * seconds),
        examples_per_s=1.0,
        energy_j=seconds,
        products_energy_j=seconds / 2,
        energy_breakdown_j={},
        dram_bytes=10,
        utilization=0.8,
        step_utilization=0.7,
        lost={"memory": 0.15, "drain": 0.05},
        by_op=(
            {"name": "fc", "phase": "forward", "cycles": 9, "utilization": 0.5, "most_lost_to": "", "most_lost": 0.0},
        ),
        host_seconds=1.0,
        host_peak_bytes=1,
    )


def printed(table: Table) -> list[list[str]]:
    """The cells of the table's body."""
    console = Console(width=300, record=True)
    console.print(table)
    lines = [line for line in console.export_text().splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_every_registry_has_unique_keys_and_says_what_a_column_is() -> None:
    registries = [value for value in vars(columns).values() if isinstance(value, tuple) and value]
    registries = [registry for registry in registries if all(isinstance(each, Column) for each in registry)]
    assert len(registries) >= 8
    for registry in registries:
        keys = [column.key for column in registry]
        assert len(set(keys)) == len(keys)
        assert all(column.title for column in registry)


def test_a_rival_of_the_fabric_is_shown_as_a_ratio_and_the_fabric_itself_is_not() -> None:
    fabric, rival = printed(columns.fabric_table([played("acf-512", 1e-3), played("tensorcore", 3e-3)], "acf-512"))
    assert fabric[:7] == ["resnet50 90%", "acf-512", "70.0%", "80.0%", "2 ms", "1 ms", "1 mJ"]
    assert fabric[7:] == ["", "", "", "memory 15.0%"]
    assert rival[7:10] == ["3.00x", "3.00x", "3.00x"]


def test_what_algorithm_1_costs_stands_below_the_table() -> None:
    update = {"cycles": {"norms": 1, "absent_gradients": 99}, "every_steps": 100, "share_of_run": 0.021}
    table = columns.fabric_table([replace(played("acf-512", 1e-3), update=update)], "acf-512")
    assert "every 100 steps (Algorithm 1) takes 2.1% of a run" in str(table.caption)
    assert "absent gradients 99.0%" in str(table.caption)


def test_a_product_that_lost_nothing_has_a_dash() -> None:
    assert printed(columns.fabric_products_table(played("acf-512", 1.0))) == [["fc", "forward", "9", "50.0%", "-"]]


def test_zeros_and_speedups_of_a_trace_and_of_an_epoch_agree() -> None:
    (trace,) = printed(columns.trace_table([FIGURES]))
    (epoch,) = printed(columns.epoch_table([EpochFigures(3, 0.5, 0.9, FIGURES)]))
    assert trace[:7] == ["vgg16", "50%", "-", "25%", "60%", "-", "-"]
    assert epoch[:5] == ["3", "0.50", "90.0%", "50.0%", "25.0%"]
    assert trace[7:] == epoch[5:] == ["1.50x", "1.25x", "1.75x", "1.60x", "1.40x", "2.00x", "3.00x"]


def test_a_timing_gives_json_its_values_and_people_its_units() -> None:
    timing = SimulatorTiming("conv", "tensordash", 2_000_000, 0.5, 0.25, 3 * 2**20)
    assert records(columns.SIMULATOR, [timing])[0]["macs_per_s"] == 4e6
    assert printed(columns.simulator_table([timing])) == [
        ["conv", "tensordash", "2 M", "500 ms", "250 ms", "4 M/s", "3.0 MiB"]
    ]
