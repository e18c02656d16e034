"""`acf bench pong` from its options to its tables, on a game without an emulator."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acf.bench.pong.bench import PongOptions, run_pong_bench
from acf.bench.pong.record import SystemFigures
from acf.bench.pong.settings import DqnSettings
from acf.cli.bench import app
from acf.errors import AcfError, ArchitectureError, MissingDependencyError
from tests.bench.pong.conftest import BrightSide

NO_SYSTEMS = ["--systems", "none"]


def nothing(what: str, share: float) -> None:
    pass


def test_runs_are_trained_once_and_shown_again(small: DqnSettings, tmp_path: Path) -> None:
    options = PongOptions(
        variants="static-90/block=32,rigl-90/block=32/moves=2",
        seeds=1,
        device="cpu",
        points=2,
        captured=2,
        systems="gpu-h200",
        evaluation=False,
        out=tmp_path / "pong",
    )
    told: list[str] = []
    store = run_pong_bench(options, small, lambda what, share: told.append(what), BrightSide)
    assert [summary.variant for summary in store.summaries()] == list(options.names)
    assert len(store.rows(SystemFigures)) == 6  # two runs, at start, middle and end
    assert {each.examples for each in store.rows(SystemFigures)} == {2}
    assert told[-1] == "done"
    first = store.to_dict()
    store.close()
    again = run_pong_bench(options, small, nothing, BrightSide)
    assert again.to_dict()["runs"] == first["runs"]
    again.close()

    drawn = tmp_path / "pong.svg"
    shown = CliRunner().invoke(app, ["pong", "--render", "--out", str(options.out), "--plot", str(drawn), *NO_SYSTEMS])
    assert shown.exit_code == 0
    assert "score by frames" in drawn.read_text()
    assert "J/step" in shown.output
    assert "never" in shown.output
    assert "U middle" in shown.output
    as_json = CliRunner().invoke(app, ["pong", "--render", "--out", str(options.out), "--json", *NO_SYSTEMS])
    assert json.loads(as_json.output)["data"]["runs"] == first["runs"]


def test_a_missing_extra_gives_the_line_that_installs_it(
    small: DqnSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.setitem(sys.modules, "ale_py.vector_env", None)
    options = PongOptions(device="cpu", systems="none", out=tmp_path / "pong")
    with pytest.raises(MissingDependencyError, match=r"pip install 'adaptive-compute-fabric\[rl\]'"):
        run_pong_bench(options, small, nothing)
    assert not (tmp_path / "pong").exists()


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"variants": " , "}, AcfError, "--variants names none"),
        ({"variants": "dense,statik-90"}, AcfError, "statik-90"),
        ({"systems": "acf-513"}, ArchitectureError, "acf-513"),
        ({"plot": Path("pong.png")}, AcfError, r"pong\.png does not end in \.svg"),
    ],
)
def test_options_are_refused_before_anything_is_played(
    wrong: dict[str, object], kind: type[AcfError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        PongOptions(**wrong)  # type: ignore[arg-type]
