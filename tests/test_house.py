"""The rules of the whole package: who may import whom, where tests stand, what signatures hold, what is documented."""

import ast
import functools
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import acf
from acf.sim.registry import ARCHITECTURES, load_architecture

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "acf"
CONFIGS = sorted((ROOT / "src" / "acf" / "sim" / "configs").rglob("*.toml"))

# The path of the data, left to right. A room may import itself and what stands before it, nothing else.
ROOMS = (
    "version",
    "errors",
    "extras",
    "units",
    "printable",
    "locks",
    "processes",
    "schema",
    "toml",
    "files",
    "run_folder",
    "checksums",
    "code_cache",
    "records",
    "plugins",
    "terminal",
    "columns",
    "options",
    "jit",
    "sparse",
    "ops",
    "masks",
    "gradients",
    "nn",
    "train",
    "trace",
    "lowering",
    "cost",
    "sim",
    "rtl",
    "runtime",
    "offloading",
    "torch_device",
    "metrics",
    "report",
    "sweep",
    "zoo",
    "bench",
    "pages",
    "reproduce",
    "demo",
    "doctor",
    "tables",
    "cli",
)
NEEDS_TRITON = (
    "acf.ops.triton.",
    *(f"acf.bench.kernels.{name}" for name in ("gpu", "precompile", "step_processes", "steps", "training_step")),
)
NEEDS_GLUON = "acf.ops.triton.warp_specialised"
ENGINE = ("sparse", "ops", "masks", "gradients", "nn", "train")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported_rooms(path: Path) -> set[str]:
    """The rooms of `acf` that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(parsed(path)):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "acf" else [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("acf.")}
    return found - {"__version__"}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_room_has_its_place_on_the_path() -> None:
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    assert rooms == set(ROOMS)


def rooms_to_the_right(path: Path) -> set[str]:
    """The rooms that a file imports and may not."""
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return set()  # the front doors lead everywhere
    return imported_rooms(path) - set(ROOMS[: ROOMS.index(room) + 1])


def test_imports_point_only_to_the_left() -> None:
    offending = {str(path.relative_to(SOURCE)): rooms_to_the_right(path) for path in SOURCE.rglob("*.py")}
    assert {path: rooms for path, rooms in offending.items() if rooms} == {}


TESTS = ROOT / "tests"
ABOUT_THE_REPOSITORY = (
    *("test_dead_code.py", "test_house.py", "test_packaging.py"),
    *("dependencies", "docs", "examples", "faults", "fuzz", "load"),
)
"""Files and folders of `tests` that belong to the whole repository, its wheel, its pages, its examples or all doors."""


def names_beside(test: Path) -> set[str]:
    """The modules and packages of `src` that stand where the test stands."""
    folder = SOURCE / test.parent.relative_to(TESTS)
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return modules | {path.parent.name for path in folder.glob("*/__init__.py")}


def bears_the_name_of_a_module(test: Path) -> bool:
    subject = test.stem.removeprefix("test_")
    return any(subject == name or subject.startswith(f"{name}_") for name in names_beside(test))


def test_a_test_stands_where_its_module_stands_and_bears_its_name() -> None:
    tests = [path for path in TESTS.rglob("test_*.py") if path.relative_to(TESTS).parts[0] not in ABOUT_THE_REPOSITORY]
    astray = [
        f"no module of {path.parent.relative_to(TESTS)}/ is called like the start of {path.name!r}; "
        f"name the test after one of {', '.join(sorted(names_beside(path)))}, or move it to where its module stands"
        for path in tests
        if not bears_the_name_of_a_module(path)
    ]
    assert tests
    assert astray == []


MOST_PARAMETERS = 7
"""Of a function outside kernels and op schemas; ``self`` and ``cls`` are not counted."""

KERNEL_DECORATORS = {"jit", "gluon_jit", "gluon_kernel", "compiled", "compiled_in_place", "inlined"}
"""Triton, Gluon and numba: kernels take tensors and scalars one by one."""

OP_SCHEMAS = {("gradients/op.py", "forward"), ("nn/attention.py", "forward")}
"""Functions whose parameters are those of an op of torch's dispatcher or of torch's own module, by file and name."""


def decorator_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Every name in the decorators: ``@jit`` and ``@gluon_kernel("groups")`` give jit and gluon_kernel."""
    nodes = [node for decorator in function.decorator_list for node in ast.walk(decorator)]
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def parameter_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [each.arg for each in every if each.arg not in ("self", "cls")]


def long_signatures(path: Path) -> list[str]:
    """The functions of a file that take too many parameters."""
    nodes = ast.walk(parsed(path))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        f"{path.relative_to(SOURCE)}: {function.name} takes {len(parameter_names(function))}"
        for function in functions
        if len(parameter_names(function)) > MOST_PARAMETERS
        and not decorator_names(function) & KERNEL_DECORATORS
        and (str(path.relative_to(SOURCE)), function.name) not in OP_SCHEMAS
    ]


def test_no_function_takes_more_than_seven_parameters() -> None:
    long = [line for path in SOURCE.rglob("*.py") for line in long_signatures(path)]
    assert long == [], "group parameters that belong together into a frozen dataclass"


FORKED = """
import os, sys, traceback
import torch  # once for all trials; what torch itself pulls in is torch's business

def trial(action, *arguments):
    # In a fork of this process, which has not imported acf.
    assert not any(name.split(".")[0] == "acf" for name in sys.modules)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            action(*arguments)
        except BaseException:
            print(traceback.format_exc(), flush=True)
            os._exit(1)
        os._exit(0)
    print(*arguments, "passed" if os.waitpid(child, 0)[1] == 0 else "failed", flush=True)
"""

BLOCKING_IMPORTER = """
ALLOWED = set(sys.stdlib_module_names) | {"acf", "torch", "torchgen", "numpy"}

class Blocker:
    def __init__(self, finders):
        self.finders = finders

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in ALLOWED:
            return None
        specs = (finder.find_spec(name, path, target) for finder in self.finders)
        return next((spec for spec in specs if spec is not None), None)

def import_rooms(*rooms):
    sys.meta_path[:] = [Blocker(list(sys.meta_path))]
    for name in rooms:
        __import__(f"acf.{name}")
    assert len([name for name in sys.modules if name.startswith("acf.")]) >= len(rooms)
    assert "torch._dynamo" not in sys.modules, "the compiler takes as long to import as torch"
"""


def printed_by(script: str) -> str:
    """What a script prints in a Python of its own."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_engine_imports_with_torch_and_numpy_alone_and_the_simulator_does_not() -> None:
    trials = f"trial(import_rooms, *{ENGINE!r})\ntrial(import_rooms, 'sim')\n"
    printed = printed_by(FORKED + BLOCKING_IMPORTER + trials)
    assert f"{' '.join(ENGINE)} passed" in printed, printed
    assert "sim failed" in printed, "the blocker of this test does not block"
    assert "ModuleNotFoundError: No module named" in printed, printed


def test_importing_acf_and_its_command_line_does_not_import_torch() -> None:
    script = (
        "import sys, json, acf, acf.cli; print(json.dumps([m in sys.modules for m in ('torch', 'numpy', 'numba')]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, False, False]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_configuration_loads(path: Path) -> None:
    assert load_architecture(path).macs_per_cycle > 0


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_what_the_file_of_its_name_says(name: str) -> None:
    loaded = load_architecture(ROOT / "src" / "acf" / "sim" / "configs" / f"{name}.toml")
    assert loaded == acf.sim.spec(name)
    assert type(loaded) is ARCHITECTURES[name]


def has_its_triton(module: str) -> bool:
    """Whether the Triton that a module needs is installed; kernels in Gluon are for 3.6 alone."""
    if not module.startswith(NEEDS_TRITON):
        return True
    try:
        installed = version("triton")
    except PackageNotFoundError:
        return False
    return installed.startswith("3.6.") or not module.startswith(NEEDS_GLUON)


def public_objects() -> list[tuple[str, object]]:
    """Every public module, and every public class, function and method defined in one."""
    found: list[tuple[str, object]] = []
    for info in pkgutil.walk_packages(acf.__path__, "acf."):
        if not has_its_triton(info.name):
            continue
        module = importlib.import_module(info.name)
        found.append((info.name, module))
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", None) != info.name:
                continue
            if inspect.isclass(value) or inspect.isfunction(value):
                found.append((f"{info.name}.{name}", value))
            if inspect.isclass(value):
                found += [
                    (f"{info.name}.{name}.{attribute}", member)
                    for attribute, member in vars(value).items()
                    if not attribute.startswith("_")
                    and (inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod))
                ]
    return found


def test_every_public_name_is_documented() -> None:
    undocumented = [name for name, value in public_objects() if not inspect.getdoc(value)]
    assert undocumented == []


def test_every_name_the_package_announces_exists_and_is_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    for name in acf.__all__:
        assert getattr(acf, name) is not None
        assert f"`acf.{name}" in reference, f"docs/reference.md does not mention acf.{name}"


USE_EVERY_NAME = """
import importlib, inspect
import numba, pydantic, torch.distributed.tensor  # once for all trials, too

def use_every_name(first, order):
    importlib.import_module(first)
    import acf
    names = sorted(acf.__all__, reverse=order == "backward")
    seen = {name: getattr(acf, name) for name in names}
    for name in reversed(names):
        value = getattr(acf, name)
        assert value is seen[name], f"acf.{name} is another object the second time"
        assert callable(value), f"acf.{name} is a {type(value).__name__} and cannot be called"
    for attempt in range(2):
        try:
            acf.report([], "never-written.html")
        except acf.AcfError as error:
            assert "make no report" in str(error)
    assert list(inspect.signature(acf.report).parameters)[:2] == ["results", "path"]
"""
FIRST_IMPORTS = [
    ("acf", "forward"),
    ("acf", "backward"),
    *((f"acf.{room}", "forward") for room in ("report", "sim", "trace", "train")),
]


def test_every_public_name_works_twice_and_in_any_order_of_imports() -> None:
    trials = "".join(f"trial(use_every_name, {first!r}, {order!r})\n" for first, order in FIRST_IMPORTS)
    printed = printed_by(FORKED + USE_EVERY_NAME + trials)
    assert printed.splitlines() == [f"{first} {order} passed" for first, order in FIRST_IMPORTS], printed


def test_an_unknown_public_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AttributeError, match="public names: AcfError"):
        acf.sparsfy_  # noqa: B018


def test_no_file_of_the_project_names_a_path_of_one_machine() -> None:
    tracked = [*SOURCE.rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "Makefile"]
    offending = [path.name for path in tracked if any(f"{root}/" in path.read_text() for root in ("/root", "/home"))]
    assert offending == []


def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]


def test_nothing_is_unpickled_but_by_readers_that_refuse_all_names_except_their_own() -> None:
    loaders = {"load", "loads"}
    for path in SOURCE.rglob("*.py"):
        for call in calls(path):
            name = ast.unparse(call.func)
            module, _, function = name.rpartition(".")
            assert not (module in ("pickle", "marshal", "dill", "shelve", "joblib") and function in loaders), path
            if name == "torch.load":
                options = {each.arg: ast.unparse(each.value) for each in call.keywords}
                assert options.get("weights_only") == "True", f"{path}:{call.lineno}"
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and any("Unpickler" in ast.unparse(base) for base in node.bases):
                assert "find_class" in {each.name for each in node.body if isinstance(each, ast.FunctionDef)}, path


def test_nothing_but_the_live_view_listens_on_a_network() -> None:
    servers = ("ThreadingHTTPServer", "HTTPServer", "TCPServer", "create_server", "start_server", "listen", "serve")
    listening = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for call in calls(path)
        if ast.unparse(call.func).split(".")[-1] in servers
    }
    assert listening == {"report/watch/page.py"}
