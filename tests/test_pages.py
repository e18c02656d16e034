"""`acf report` takes the record of every command."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import acf
from acf.cli import app
from acf.pages import Content, content_of, origins_section
from acf.records import KINDS, Record, parse_record, read_record, record_text
from acf.report.page import page_html

RESULTS = Path(__file__).parents[1] / "docs" / "results"
RUNNER = CliRunner()


def commands_with_json(group: Any, words: tuple[str, ...] = ("acf",)) -> set[str]:
    """The words of every command that has --json."""
    below = getattr(group, "commands", None)
    if below is not None:
        return {each for name in below for each in commands_with_json(below[name], (*words, name))}
    flags = {flag for option in group.get_params(typer.Context(group)) for flag in option.opts}
    return {" ".join(words)} if "--json" in flags else set()


def test_every_command_with_json_writes_a_kind() -> None:
    listed = {command.strip() for kind in KINDS.values() for command in kind.command.split(",")}
    assert commands_with_json(typer.main.get_command(app)) == listed - {"acf doctor --layers", "acf rtl step --moves"}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """What quick commands print with --json."""
    folder = tmp_path_factory.mktemp("records")
    trace = folder / "step.safetensors"
    half = np.random.default_rng(0).random((32, 32)) < 0.5
    acf.Trace.from_matmuls([acf.Matmul("fc", "forward", half, half)], label="half").save(trace)
    with acf.RunLog(folder / "run", total_steps=1) as log:
        log.step(1, 0.5)
    commands = (
        ("simulate", str(trace), "--on", "acf-512"),
        ("compare", str(trace), "--on", "acf-512"),
        ("traces", str(trace)),
        ("architectures",),
        ("doctor",),
        ("watch", str(folder / "run")),
        ("reproduce", "--only", "T5"),
        ("sweep", str(trace), "--base", "tensorcore-512", "--set", "rows=8,16", "--jobs", "1"),
        ("rtl", "units"),
    )
    records = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in commands:
            done = RUNNER.invoke(app, [*command, "--json"])
            assert done.exit_code == 0, (command, done.output)
            records.append(parse_record(json.loads(done.stdout), f"{'-'.join(command[:2])}.json"))
    return records


def tables_of(content: Content) -> int:
    return sum(len(section.tables) for section in content.sections)


def test_the_records_of_commands_become_one_page(printed: list[Record]) -> None:
    contents = [content_of(record) for record in printed]
    assert [record.kind for record in printed][:3] == ["results", "comparison", "traces"]
    assert len(contents[0].results) == 1
    assert len(contents[1].results) == 2
    assert all(tables_of(content) for content in contents[2:])
    content = sum(contents, Content())
    page = page_html(content.results, (), (), "all", (*content.sections, origins_section(printed)))
    for text in ("C++ compiler", "acf-512 on half", "Pareto front", "acf reproduce", "tensordash"):
        assert text in page


PUBLISHED = {"ablations.json": "ablations", "ablations-memory.json": "ablations", "demo.json": "results"}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.name)
def test_every_published_record_becomes_part_of_a_page(path: Path) -> None:
    content = content_of(read_record(path))
    assert getattr(content, PUBLISHED.get(path.name, "sections"))
    assert all(table.table.rows for section in content.sections for table in section.tables)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith(("rtl-", "off", "pong", "eval", "layers"))])
def test_a_kind_without_a_page_of_its_own_becomes_tables(kind: str) -> None:
    data = {"cycles": 12, "runs": [{"name": "a", "seconds": 0.5, "curve": [{"step": 1, "loss": 2.0}]}]}
    content = content_of(parse_record(json.loads(record_text(kind, data)), "x.json"))
    (section,) = content.sections
    assert KINDS[kind].command in section.text
    titles = [table.title for table in section.tables]
    assert titles == ["values", "runs", "runs: curve"]
    assert section.tables[1].table.rows == (("a", "500 ms"),)
    assert section.tables[2].table.rows == (("a", "1", "2"),)


def test_an_entry_of_another_kind_is_refused_with_its_file() -> None:
    wrong = Record("results", [{"part": 1}], "x.json")
    with pytest.raises(acf.errors.ReportError, match=r"x\.json: an entry with the keys part is no result"):
        content_of(wrong)
