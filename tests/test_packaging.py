"""The wheel: what is in it, and that a fresh environment runs the command `acf` from it. Nothing is downloaded."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import acf

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "acf"
DATA_SUFFIXES = {".LICENSE", ".cpp", ".css", ".h", ".jinja", ".js", ".json", ".toml", ".typed"}


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of ``command``, without this process's ``PYTHONPATH``; what it says is shown if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools would take up files that an earlier build left in the tree."""
    copy = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    run(*pip, "--wheel-dir", copy / "dist", ".", cwd=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of a fresh environment that holds the wheel, and borrows what it depends on from ours."""
    fresh = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=fresh)
    commands = fresh / "venv" / "bin"
    (packages,) = (fresh / "venv").glob("lib/python*/site-packages")
    borrowed = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path])
    (packages / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed if path.endswith("-packages")))
    pip = (sys.executable, "-m", "pip", "--python", commands / "python")
    run(*pip, "install", "--no-compile", "--no-deps", "--no-index", "--quiet", wheel, cwd=fresh)
    reuse_compiled_loops(packages / "acf")
    return commands


def reuse_compiled_loops(installed: Path) -> None:
    """Give the installed package what numba has compiled of the same files here: the demo would compile for a minute.

    numba takes a compiled loop for that of a file by the file's size and time of change.
    """
    for source in SOURCE.rglob("*.py"):
        copy = installed / source.relative_to(SOURCE)
        assert copy.read_bytes() == source.read_bytes()
        os.utime(copy, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
        for kept in (source.parent / "__pycache__").glob(f"{source.stem}.*.nb[ic]"):
            (copy.parent / "__pycache__").mkdir(exist_ok=True)
            shutil.copy(kept, copy.parent / "__pycache__")


def test_the_wheel_has_the_name_and_version_of_the_project(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "adaptive-compute-fabric"
    assert project["version"] == acf.__version__
    assert wheel.name == f"adaptive_compute_fabric-{acf.__version__}-py3-none-any.whl"


def test_the_wheel_holds_every_module_and_data_file(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("acf/")}
    files = [path for path in SOURCE.rglob("*") if path.suffix in DATA_SUFFIXES | {".py"}]
    assert packed == {path.relative_to(SOURCE.parent).as_posix() for path in files}


def test_every_message_names_the_distribution_that_is_ours() -> None:
    strangers = [
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "tests", "docs", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md"} and "install '" + "acf[" in path.read_text()
    ]
    assert strangers == []


def test_the_installed_package_is_the_one_that_runs(environment: Path, tmp_path: Path) -> None:
    where = run(environment / "python", "-c", "import acf; print(acf.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(environment.parent)


def test_doctor_runs_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    assert "torch" in run(environment / "acf", "doctor", cwd=tmp_path)


def test_the_demo_runs_from_the_wheel_in_an_empty_folder(environment: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn: the extra `demo`")
    output = run(environment / "acf", "demo", "--steps", "40", cwd=tmp_path)
    assert "acf-512" in output
    assert (tmp_path / "runs" / "demo" / "report.html").stat().st_size > 0
