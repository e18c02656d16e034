"""Nothing in `src` is there for its test alone: every public name is used by the package, or shown to its users."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "acf"
WORD = re.compile(r"[A-Za-z_]\w*")
REFERENCE = re.compile(r"[\w.]+(:\w+)?")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

CALLED_BY_OTHERS = {
    "amaranth": {"elaborate"},
    "typer": {"resolve_command"},
    "http.server": {"do_GET", "log_message"},
    "numba": {"load_overload", "save_overload"},
    "pickle": {"find_class"},
    "torch": {
        *("jvp", "load_bytes", "setup_context"),
        *("get_amp_supported_dtype", "get_rng_state_all", "manual_seed_all", "set_rng_state_all"),
    },
}
"""Functions that a library calls by their names."""

FOLDERS_OF_EVIDENCE = ("rtl/verify/formal",)
"""Folders whose classes are properties that the suite proves: a proof is their only use."""

EVIDENCE = {
    "what a component of the RTL must do, value by value and cycle by cycle": {
        *("ThresholdModel", "csc_memory", "fills_of", "commands_of", "transposed_commands"),
    },
    "the tables of the documentation, which a test compares with it": {"descriptor_table"},
    "the DRAM model in closed form, which golden figures are given for": {"sustained_bandwidth", "energy_per_bit"},
    "the encoder whose entries `count_entries` counts": {"encode_columns"},
    "a route of the mesh's own interface, which `simulate_packets` takes": {"id_of_group"},
    "programs of the device that other tests compare with": {"run_indexed"},
    "figures for users": {"active_joules", "model_sparsity"},
}
"""Names that only tests use, by what they are good for. New ones belong into `tests`."""


def uses_in(path: Path, tree: ast.Module) -> Counter[str]:
    """The words that a file uses; what a room's ``__init__.py`` only passes on is not used by that."""
    if path.name != "__init__.py" or path.parent == SOURCE:
        return words_used(tree)
    used: Counter[str] = Counter()
    for node in tree.body:
        announces = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        if not announces and not isinstance(node, ast.ImportFrom):
            used += words_used(node)
    return used


def words_used(tree: ast.AST) -> Counter[str]:
    """How often each name is read, imported or written as ``"module:name"`` below ``tree``."""
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found[node.id] += 1
        elif isinstance(node, ast.Attribute):
            found[node.attr] += 1
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and REFERENCE.fullmatch(str(node.value)):
            found.update(WORD.findall(str(node.value)))
    return found


def public_definitions(tree: ast.Module) -> Iterator[Definition]:
    """The functions and classes of a file, and their methods."""
    for node in tree.body:
        if isinstance(node, Definition):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (member for member in node.body if isinstance(member, ast.FunctionDef))


def shown_to_users() -> set[str]:
    """Every word of the pages and examples, of the page's template and of the package's front door."""
    pages = [path for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*")]
    files = [path for path in pages if path.suffix in (".md", ".py")] + list(SOURCE.rglob("*.jinja"))
    files += [ROOT / "README.md", SOURCE / "__init__.py"]
    return {word for path in files for word in WORD.findall(path.read_text())}


@functools.cache
def unused_names() -> tuple[str, ...]:
    """``file: name`` for every public name that is used nowhere but in its own definition and in tests."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    used: Counter[str] = Counter()
    for path, tree in trees.items():
        used += uses_in(path, tree)
    shown = shown_to_users()
    return tuple(
        f"{path.relative_to(SOURCE)}: {definition.name}"
        for path, tree in trees.items()
        for definition in public_definitions(tree)
        if not definition.name.startswith("_")
        and used[definition.name] <= words_used(definition)[definition.name]
        and definition.name not in shown
    )


def expected_names() -> set[str]:
    return set().union(*CALLED_BY_OTHERS.values(), *EVIDENCE.values())


def test_no_public_name_is_there_for_its_test_alone() -> None:
    dead = [
        line
        for line in unused_names()
        if line.partition(": ")[2] not in expected_names() and not line.startswith(FOLDERS_OF_EVIDENCE)
    ]
    assert dead == [], "delete them, or move them to where their tests are"


def test_the_lists_of_names_that_nothing_of_ours_uses_hold_no_other() -> None:
    assert expected_names() - {line.partition(": ")[2] for line in unused_names()} == set()


def test_no_line_silences_a_checker_without_saying_which_rule() -> None:
    blanket = re.compile(r"#\s*(type:\s*ignore(?!\[)|noqa(?!:\s*[A-Z]+\d)|pragma:\s*no cover)")
    files = [path for folder in ("src", "tests", "examples", "docs") for path in (ROOT / folder).rglob("*.py")]
    lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if blanket.search(line) and "blanket" not in line
    ]
    assert lines == []
