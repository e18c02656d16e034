"""What `acf doctor` finds, and the functions it loads by name."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from acf.doctor import PARTS, Finding, load_builder
from acf.errors import SparsityError
from acf.ops.cpu import build as cpu_build
from acf.tables import doctor_table


def test_the_line_to_install_an_extra_is_printed_whole() -> None:
    remedy = "for acf demo: pip install 'adaptive-compute-fabric[demo]'"
    console = Console(width=200, record=True)
    console.print(doctor_table([Finding("scikit-learn", False, "not installed", remedy)]))
    assert remedy in console.export_text()


def test_a_module_of_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder_with_a_model.py").write_text("def build():\n    return 'model', 'example'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != ""])
    assert load_builder("folder_with_a_model:build")() == ("model", "example")


def test_files_of_the_current_folder_hide_no_installed_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder_with_an_import.py").write_text(
        "import colorsys\n\ndef build():\n    return colorsys.__file__\n"
    )
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != ""])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert Path(load_builder("folder_with_an_import:build")()).parent != tmp_path


def test_the_current_folder_is_not_searched_for_a_module_it_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != ""])
    load_builder("json:loads")
    with pytest.raises(SparsityError, match="cannot be imported"):
        load_builder("no_such_module:build")
    assert "" not in sys.path


@pytest.mark.parametrize("builder", ["nothing", "module:", ":function", "..module:function", "module:two words"])
def test_what_names_no_function_is_refused(builder: str) -> None:
    with pytest.raises(SparsityError, match="is not module:function"):
        load_builder(builder)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("exec sleep 60", (False, "none")),
        ("exit 3", (False, "none")),
        (r"printf 'caf\351 1.0\nlicence\n'", (True, "caf\N{REPLACEMENT CHARACTER} 1.0")),
    ],
)
def test_a_compiler_that_hangs_fails_or_speaks_no_utf8_is_a_finding(
    action: str, expected: tuple[bool, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\n{action}\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(cpu_build, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(cpu_build.shutil, "which", lambda command: command if command == str(compiler) else None)
    found = PARTS["compiler"]()
    assert (found.present, found.found) == expected
