"""The documentation site builds without a warning, and its picture and its reference are up to date."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import acf
from acf import runtime

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason="the site needs the extra `docs`")
    options = ("-W", "--keep-going", "-q", "-d", tmp_path / "trees")
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        (sys.executable, "-m", "sphinx", *options, DOCS, tmp_path / "site"),
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "sparsify_" in (tmp_path / "site" / "api.html").read_text()


def test_every_public_name_has_its_entry_in_the_generated_reference() -> None:
    page = (DOCS / "api.md").read_text()
    named = set(re.findall(r"auto(?:class|function|exception):: acf\.([\w.]+)", page))
    assert {name for name in named if "." not in name} == set(acf.__all__)
    errors = {name for name in runtime.__all__ if name.endswith("Error")}  # documented with their module
    in_runtime = {name.removeprefix("runtime.") for name in named if name.startswith("runtime.")}
    assert in_runtime == set(runtime.__all__) - errors - {"BACKENDS"}


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / "README.md").read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_picture_is_drawn_from_the_record() -> None:
    script = runpy.run_path(str(DOCS / "figures" / "step_speedups.py"))
    assert script["PICTURE"].read_text() == script["draw"]()
