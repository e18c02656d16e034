"""The commands `acf rtl ...`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from typer.testing import CliRunner

from acf.cli import app, main
from acf.errors import RtlError
from tests.rtl.conftest import skip_without_verilator
from tests.rtl.tools.reports.components import LIBERTY

TWO_SCUS = """\
base = "acf-512"
mesh_rows = 1
mesh_columns = 1
scus_per_cluster = 2
tile = 8
link_bytes = 16
queue_packets = 2
parallel_slots = 4
accumulator_tiles = 2
prefetch_packets = 2
"""


@pytest.fixture
def two_scus(tmp_path: Path) -> str:
    """The file of a fabric as small as one can be built: Amaranth's simulator elaborates every instance."""
    path = tmp_path / "two-scus.toml"
    path.write_text(TWO_SCUS)
    return str(path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["rtl", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_emit_writes_the_same_file_twice(tmp_path: Path) -> None:
    first, second = tmp_path / "first.v", tmp_path / "second.v"
    facts = json.loads(run("emit", "mac", "-o", str(first), "--json"))["data"]
    run("emit", "mac", "-o", str(second))
    assert facts["modules"] == first.read_text().count("\nmodule ") >= 3  # the unit, its multiplier and its adder
    assert first.read_bytes() == second.read_bytes()
    assert "module acf_mac(" in first.read_text()


def test_synth_says_that_a_queue_lies_in_distributed_memory() -> None:
    facts = json.loads(run("synth", "fifo", "--json"))["data"]
    assert facts["cells"]["RAM32M16"] == 3
    assert facts["resources"]["flip_flops"] < 16
    assert facts["shares"]["vu9p"]["luts"] == facts["resources"]["luts"] / 1_182_240
    assert 0 < facts["logic_depth"] < 10


def test_area_speaks_json() -> None:
    assert json.loads(run("area", "credits", "--liberty", str(LIBERTY), "--json"))["data"]["cells"]["DFF"] == 3


def test_area_is_shown_as_a_table_with_every_module() -> None:
    shown = run("area", "credits", "--liberty", str(LIBERTY))
    assert "gate equivalents" in shown
    assert "credits" in shown


def test_power_is_shown_by_module_and_repeats_from_its_seed() -> None:
    skip_without_verilator()
    unit = ("power", "credits", "--liberty", str(LIBERTY), "--cycles", "64")
    first, again, other = (json.loads(run(*unit, "--seed", seed, "--json"))["data"] for seed in ("0", "0", "1"))
    assert first == again != other
    assert first["switched_per_cycle"] > first["clock_per_cycle"] > 0
    shown = run(*unit)
    assert f"credits: {first['switched_per_cycle']:,.1f} switched per cycle" in " ".join(shown.split())


def test_the_components_are_listed_by_name() -> None:
    listed = json.loads(run("units", "--json"))["data"]
    assert "router" in listed
    shown = run("units")
    assert all(name in shown for name in listed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["emit", "abacus"], "unit 'abacus' is not one of multiplier, adder, mac"),
        (["synth", "credits", "--target", "ice40"], "target 'ice40' is not one of xcup"),
        (["area", "credits", "--liberty", "no.lib"], "no.lib cannot be read (No such file or directory)"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["acf", "rtl", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in error
    assert error.count("\n") == 1


def test_emit_needs_a_unit_or_a_configuration() -> None:
    result = CliRunner().invoke(app, ["rtl", "emit"])
    assert result.exit_code != 0
    assert isinstance(result.exception, RtlError)


def test_the_command_tells_what_moved_and_that_the_output_is_right(two_scus: str) -> None:
    size = ["--on", two_scus, "--tokens", "4", "--inputs", "8", "--outputs", "8", "--sparsity", "0"]
    result = CliRunner().invoke(app, ["rtl", "device", *size, "--latency", "3", "--backend", "pysim", "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)["data"]
    assert facts["is_equal"] is True
    assert facts["written_bytes"] == 8 * 8 * 2  # one serial tile of four rows, and so one tile of results
    assert facts["programs"] == 1


def test_a_layer_on_the_gates_is_told_in_cycles_by_reason_and_drawn(two_scus: str) -> None:
    size = ("--on", two_scus, "--tokens", "4", "--inputs", "8", "--outputs", "8", "--sparsity", "0")
    shown = run("sim", *size, "--backend", "pysim", "--timing", "20")
    assert "cycles on 2 SCUs (pysim" in shown
    assert "the model agrees on every event, counter and bit" in shown
    assert sum(line.startswith("SCU ") for line in shown.splitlines()) == 2
    facts = json.loads(run("sim", *size, "--backend", "pysim", "--json"))["data"]
    assert facts["cycles"] == facts["model_cycles"] > 0
    assert sum(facts["scu_cycles"].values()) == 2 * facts["cycles"]
    assert facts["divergence"] is None


def test_random_programs_agree_and_are_counted(two_scus: str) -> None:
    options = ("--on", two_scus, "--programs", "2", "--tiles", "2", "--backend", "pysim", "--json")
    facts = json.loads(run("lockstep", *options))["data"]
    assert (facts["programs"], facts["scus"], facts["backend"]) == (2, 2, "pysim")
    assert facts["cycles"] > 0


@pytest.mark.parametrize("command", ["sim", "device", "power"])
def test_help_shows_what_can_be_run_without_amaranth(command: str) -> None:
    script = (
        "import sys; sys.modules['amaranth'] = None\nfrom acf.cli import app\n"
        f"sys.argv = ['acf', 'rtl', '{command}', '--help']\napp()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--sparsity" in done.stdout
