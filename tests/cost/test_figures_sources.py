"""Every number of the cost tables says where it comes from."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import acf.cost
from acf.cost import DATA_TYPES, LOGIC_ENERGY, MAC_65NM_MM2, Figure
from acf.cost.sram import SOURCE as SRAM_SOURCE

FILES = sorted(Path(acf.cost.__file__).parent.glob("*.py"))
SOURCES = ("TensorDash", "SparTANN", "CACTI", "NVIDIA", "Stillmaker", "DRAMsim3", "BookSim", "ssum", "acf rtl")


def constants(text: str) -> Iterator[tuple[str, bool]]:
    """Names of public constants that hold bare numbers, and whether a docstring with a source follows.

    Private tables are what figures are made of; those of the SRAM have one source for all of them.
    """
    body = ast.parse(text).body
    for place, node in enumerate(body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if ast.unparse(target).startswith("_"):
            continue
        if not any(_is_number(part) for part in _outside_figures(node.value)):
            continue
        after = body[place + 1] if place + 1 < len(body) else None
        written = ast.unparse(after) if isinstance(after, ast.Expr) else ""
        yield ast.unparse(target), any(source in written for source in SOURCES)


def _outside_figures(node: ast.expr) -> Iterator[ast.AST]:
    """The parts of an expression that are neither a `Figure`, keys, nor computed from figures."""
    if isinstance(node, ast.Dict):
        for value in node.values:
            yield from _outside_figures(value)
    elif isinstance(node, ast.Tuple | ast.List):
        for element in node.elts:
            yield from _outside_figures(element)
    elif isinstance(node, ast.BinOp):
        yield from _outside_figures(node.left)
        yield from _outside_figures(node.right)
    elif isinstance(node, ast.Constant):
        yield node


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_bare_number_stands_without_a_source(path: Path) -> None:
    unsourced = [name for name, sourced in constants(path.read_text()) if not sourced]
    assert unsourced == [], f"{path.name}: make these a Figure, or name the source in a docstring below them"


def test_the_rule_finds_a_number_without_a_source() -> None:
    assert list(constants("WATTS = 3.0\n")) == [("WATTS", False)]
    assert list(constants('TABLE = {65: (1, 2.0)}\n"""From memory."""\n')) == [("TABLE", False)]
    assert list(constants('TABLE = {65: (1, 2.0)}\n"""CACTI 7."""\n')) == [("TABLE", True)]
    assert list(constants("FIGURE = Figure(3.0, 'W', 'a paper')\n")) == []


def test_the_sram_tables_have_a_source() -> None:
    assert "CACTI" in SRAM_SOURCE


def test_figures_of_data_types_and_nodes_have_sources() -> None:
    figures = [*LOGIC_ENERGY.values(), MAC_65NM_MM2]
    figures += [part for data_type in DATA_TYPES.values() for part in (data_type.compute_mw, data_type.compute_mm2)]
    assert all(isinstance(figure, Figure) and figure.unit and len(figure.source) > 10 for figure in figures)
