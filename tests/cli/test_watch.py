"""`acf watch` on the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import acf
from acf.cli import app, main

runner = CliRunner()


def test_a_finished_run_is_shown_as_text_and_as_json(tmp_path: Path):
    with acf.RunLog(tmp_path / "mine", total_steps=1) as log:
        log.step(1, 0.5)
    shown = runner.invoke(app, ["watch", str(tmp_path / "mine")])
    assert shown.exit_code == 0
    assert "mine  finished" in shown.output
    values = json.loads(runner.invoke(app, ["watch", str(tmp_path / "mine"), "--json"]).output)["data"]
    assert (values["state"], values["step"], values["loss"]) == ("finished", 1, 0.5)


def test_a_folder_without_a_log_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.argv", ["acf", "watch", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err.startswith(f"acf: {tmp_path / 'log.jsonl'} cannot be read")
