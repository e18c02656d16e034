"""Figures of the pages, bound to the records that they come from.

A comment above a table says which record makes it. `tests/docs/test_figures.py` compares them cell by cell, and
``python docs/figures/bound.py`` writes the tables of all pages again from their records.

    <!-- table: fabric.json
    rows: [row for row in record if row.network == "resnet50"]
    machine: {machine}
    U: {utilization:.1%}
    -->

Every line but ``rows`` names a column by its title and gives the text of a cell, as in an f-string: the fields of the
row are names in it, and ``row`` is the row itself. The second column of a title is ``title#2``. A comment anywhere in a
page binds a text of that page, which must occur in it as written:

    <!-- figure: kernels-h200.json {max(row.ratio for row in conv):.1f}x as fast as cuDNN -->

In both, ``record`` is the whole record (its ``data``, where it has an envelope), and the fields of a record that is an
object are names. ``other("fabric-scale.json")`` is the content of another record, for a figure of two. ``one(rows,
**fields)`` is the only row with these fields; ``each(rows, "checks")`` lists the rows of a nested list beside the
fields around it; ``largest(lost)`` names the largest shares; ``span([0.4, 2.6, 1.1], ".1f")`` is "0.4 to 2.6".
``ablation(record[0], 0.9)`` lists the rows of an ablation, each measure as `acf report` writes it; ``mean(record[0],
"tile 16", "16", "speedup")`` is one of these measures over all seeds. Of whole steps, ``step(record, "resnet50",
"acf-512", 0.9)`` is a row of a fabric, ``seeds`` its rows of all seeds, and ``gain(record, row, "energy_j",
"tensorcore")`` how many times the figure of a fabric's row the machine beside it takes.
Paths are relative to ``docs/results``.

What no comment binds is counted: numbers with a decimal point, and ratios such as 4x. Code, versions, clocks, columns
of aims and numbers behind the name of a setting are chosen, not measured, and do not count.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "status.md",
    ROOT / "docs" / "explanation" / "when-it-pays.md",
    *sorted(RESULTS.glob("*.md")),
)
BINDING_PAGES = (*PAGES, ROOT / "docs" / "rtl-fabric.md")
"""Pages that bind figures; of those that are not in `PAGES`, others are not counted."""

COMMENT = re.compile(r"<!-- (table|figure): (\S+\.json)\s+(.*?)\s*-->", re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\|[ ]*$\n?)+", re.MULTILINE)
FIGURE = re.compile(r"(?<![\w.,-])[-+]?(?:\d[\d,]*\.\d+(?![\d.]*\.)|\d[\d,]*(?=x\b))")
"""What counts as a figure: a number with a decimal point, or a ratio such as 4x. Whole numbers are conditions."""
VERSION = re.compile(
    r"\b(?:torch|triton|Triton|Python|CUDA|Linux|SqueezeNet|MKL|oneDNN|Yosys|g\+\+|capability|version)\s+\d[\w.+]*"
)
SETTING = re.compile(
    r"\b(?:momentum|smoothing|rate|at\s+density|planned\s+for|aim|aim\s+is)\s+(?:of\s+|to\s+)?[-+]?\d[\d.]*(?:e-\d+|x)?"
    r"|[\d.]+\s+[GM]Hz"
)
"""A number behind the name of a setting, a clock or an aim: chosen, not measured."""
GIVEN_COLUMNS = ("aim",)
"""Titles of columns whose numbers are chosen, not measured."""
INDENTED_CODE = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")


@dataclass(frozen=True)
class Binding:
    """A comment of a page: what it binds ("table" or "figure"), the record, the text after it, and where it ends."""

    kind: str
    record: str
    text: str
    end: int


def bindings_of(page: str) -> list[Binding]:
    """All bindings of a page, in order."""
    return [Binding(each[1], each[2], each[3], each.end()) for each in COMMENT.finditer(page)]


def names_of(record: str) -> dict[str, Any]:
    """The names that templates of this record may use."""
    loaded = other(record)
    functions = (one, each, largest, ablation, mean, span, other, step, seeds, gain, fmean, stdev)
    helpers = {function.__name__: function for function in functions} | {"sum": exact_sum}
    return helpers | {"record": loaded} | (vars(loaded) if isinstance(loaded, SimpleNamespace) else {})


def other(record: str) -> Any:
    """What a record holds, without its envelope."""
    path = RESULTS / record
    if not path.exists():
        raise LookupError(f"record {record} is missing; make it again, or take the binding out")
    loaded = json.loads(path.read_text(encoding="utf-8"), object_hook=lambda fields: SimpleNamespace(**fields))
    has_envelope = {"kind", "schema", "data"} <= set(vars(loaded) if isinstance(loaded, SimpleNamespace) else ())
    return loaded.data if has_envelope else loaded


def exact_sum(values: Iterable[float]) -> float:
    """What ``sum`` is in a template: fractions are rounded once, while Python's own differs between 3.11 and 3.12.

    >>> exact_sum([0.1] * 10), exact_sum([1, 2])
    (1.0, 3)
    """
    numbers = list(values)
    return fsum(numbers) if any(isinstance(each, float) for each in numbers) else sum(numbers)


def one(rows: list[SimpleNamespace], **fields: Any) -> SimpleNamespace:
    """The only row that has these values."""
    found = [row for row in rows if all(getattr(row, name, None) == value for name, value in fields.items())]
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows have {fields}; exactly one must")
    return found[0]


def each(rows: list[SimpleNamespace], inner: str) -> list[SimpleNamespace]:
    """Every row of the nested list ``inner``, with the fields of the row around it."""
    return [SimpleNamespace(**(vars(row) | vars(nested))) for row in rows for nested in getattr(row, inner)]


def largest(shares: SimpleNamespace, count: int = 3, least: float = 0.003) -> str:
    """The largest ``shares`` by name, in per cent, down to ``least``."""
    ordered = sorted(vars(shares).items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.1%}" for name, share in ordered[:count] if share >= least)


def ablation(record: SimpleNamespace, sparsity: float) -> list[SimpleNamespace]:
    """The rows of an ablation at one sparsity: series, value, and the text of every measure by its name."""
    from acf.metrics import AblationRecord
    from acf.metrics.ablation import written_spread

    read = AblationRecord.from_dict(json.loads(json.dumps(record, default=vars)))
    return [
        SimpleNamespace(
            series=row.series,
            value=row.value,
            sparsity=row.sparsity,
            **{name: written_spread(name, row.spreads.get(name)) for name in read.measures},
        )
        for row in read.rows
        if row.sparsity == sparsity
    ]


def mean(record: SimpleNamespace, series: str, value: str, measure: str) -> float:
    """A measure of an ablation over all seeds, at one value of a series."""
    found = [point.figures for point in record.points if (point.series, point.value) == (series, value)]
    if not found:
        raise LookupError(f"ablation {record.ablation} has no {value!r} of {series!r}")
    return fmean(getattr(figures, measure) for figures in found)


def span(values: list[float], form: str) -> str:
    """The least and the greatest of some values, as text."""
    return f"{min(values):{form}} to {max(values):{form}}"


def step(
    rows: list[SimpleNamespace],
    network: str,
    fabric: str,
    sparsity: float,
    machine: str = "",
    seed: int = 0,
    zeros: str = "synthetic",
) -> SimpleNamespace:
    """The row of a step on ``fabric``, or on the ``machine`` beside it."""
    return one(
        rows, network=network, beside=fabric, machine=machine or fabric, sparsity=sparsity, seed=seed, zeros=zeros
    )


def seeds(
    rows: list[SimpleNamespace], network: str, fabric: str, sparsity: float, zeros: str = "synthetic"
) -> list[SimpleNamespace]:
    """The rows of a step on ``fabric`` with all seeds."""
    fields = {"network": network, "beside": fabric, "machine": fabric, "sparsity": sparsity, "zeros": zeros}
    return [row for row in rows if fields.items() <= vars(row).items()]


def gain(rows: list[SimpleNamespace], row: SimpleNamespace, name: str, machine: str) -> float:
    """The figure ``name`` of the ``machine`` beside a fabric's ``row``, over that of the row."""
    beside = step(rows, row.network, row.beside, row.sparsity, machine, row.seed, row.zeros)
    return float(getattr(beside, name) / getattr(row, name))


def fill(template: str, names: dict[str, Any]) -> str:
    """``template`` with its expressions replaced by their values."""
    return str(eval("f" + repr(template), dict(names)))


def cells_of(line: str) -> list[str]:
    """The cells of a table's line."""
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def titles_of(line: str) -> list[str]:
    """The titles of a table's columns; the second of a name gets "#2", and so on."""
    cells = cells_of(line)
    counts = [cells[: place + 1].count(cell) for place, cell in enumerate(cells)]
    return [cell if count == 1 else f"{cell}#{count}" for cell, count in zip(cells, counts, strict=True)]


def bound_table(page: str, binding: Binding) -> tuple[re.Match[str], list[list[str]]]:
    """The table after a binding, and its cells as the record has them; unbound columns as they stand."""
    table = TABLE.search(page, binding.end)
    if table is None or page[binding.end : table.start()].strip():
        raise LookupError(f"no table follows the binding to {binding.record}")
    names = names_of(binding.record)
    first, _, *body = table[0].splitlines()
    head, lines = titles_of(first), [cells_of(line) for line in body]
    columns = templates_of(binding, head)
    rows = [_named(row) for row in eval(columns.pop("rows"), dict(names))]
    old = [*lines, *[[""] * len(head)] * (len(rows) - len(lines))][: len(rows)]
    return table, [
        [
            fill(columns[title], names | row) if title in columns else cell
            for title, cell in zip(head, cells, strict=True)
        ]
        for row, cells in zip(rows, old, strict=True)
    ]


def templates_of(binding: Binding, head: list[str]) -> dict[str, str]:
    """The templates of a table's binding by title, and under "rows" the expression that lists its rows."""
    known = sorted(["rows", *head], key=len, reverse=True)  # a title may begin with another and hold a colon
    templates = {"rows": "record"}
    for line in filter(None, map(str.strip, binding.text.splitlines())):
        title = next((title for title in known if line.startswith(f"{title}: ")), None)
        if title is None:
            raise LookupError(f"the table bound to {binding.record} has no column for {line!r}")
        templates[title] = line.removeprefix(f"{title}: ")
    return templates


def _named(row: Any) -> dict[str, Any]:
    return {"row": row} | (vars(row) if isinstance(row, SimpleNamespace) else {})


def written(page: str) -> str:
    """The page with every bound table as its record has it."""
    for binding in reversed([each for each in bindings_of(page) if each.kind == "table"]):
        table, cells = bound_table(page, binding)
        head, shown = table[0].splitlines()[:2], table[0].splitlines()[2:]
        if [cells_of(line) for line in shown] == cells:
            continue
        body = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in cells]
        end = "\n" if table[0].endswith("\n") else ""
        page = page[: table.start()] + "\n".join([*head, *body]) + end + page[table.end() :]
    return page


def wrong_figures(page: str) -> Iterator[str]:
    """What a page says otherwise than its records, one line each."""
    for binding in bindings_of(page):
        if binding.kind == "figure":
            text = fill(" ".join(binding.text.split()), names_of(binding.record))
            if text not in " ".join(page.split()):
                yield f"{binding.record} says {text!r}, the page does not"
            continue
        table, cells = bound_table(page, binding)
        shown = [cells_of(line) for line in table[0].splitlines()[2:]]
        if len(shown) != len(cells):
            yield f"{binding.record} has {len(cells)} rows, the table {len(shown)}"
        pairs = (pair for both in zip(shown, cells, strict=False) for pair in zip(*both, strict=True))
        yield from (f"{binding.record} says {new!r}, the page {old!r}" for old, new in pairs if old != new)


def without_bound(page: str) -> str:
    """The page without comments, code, versions, settings, aims, links' targets, and all text that is bound."""
    flat = page
    for binding in reversed([each for each in bindings_of(page) if each.kind == "table"]):
        table, _ = bound_table(page, binding)
        titles = templates_of(binding, titles_of(table[0].splitlines()[0]))
        flat = flat[: table.start()] + _without_columns(table[0], {*titles, *GIVEN_COLUMNS}) + flat[table.end() :]
    flat = re.sub(r"```.*?```", "", COMMENT.sub("", flat), flags=re.DOTALL)
    flat = TABLE.sub(lambda table: _without_columns(table[0], set(GIVEN_COLUMNS)), INDENTED_CODE.sub("", flat))
    flat = SETTING.sub("", VERSION.sub("", flat))
    flat = re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", "", flat, flags=re.DOTALL)
    for binding in bindings_of(page):
        if binding.kind == "figure":
            text = fill(" ".join(binding.text.split()), names_of(binding.record))
            bound = r"\s+".join(re.escape(word) for word in re.sub(r"`[^`]*`|\]\([^)]*\)", "", text).split())
            flat = re.sub(bound, "", flat)
    return flat


def _without_columns(table: str, titles: set[str]) -> str:
    """The cells of a table without its head and without the columns of these titles."""
    first, _, *body = table.splitlines()
    rows = [zip(titles_of(first), cells_of(line), strict=True) for line in body]
    return "\n".join(" | ".join(cell for title, cell in row if title not in titles) for row in rows) + "\n"


def unbound_figures(page: str) -> dict[str, int]:
    """How many figures of every section have no record, by the section's heading."""
    counts: dict[str, int] = {}
    heading = ""
    for line in without_bound(page).splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        elif found := len(FIGURE.findall(line)):
            counts[heading] = counts.get(heading, 0) + found
    return counts


if __name__ == "__main__":
    failed = False
    for path in BINDING_PAGES:
        before = path.read_text(encoding="utf-8")
        after = written(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: tables written again")
        for wrong in wrong_figures(after):
            print(f"{path.relative_to(ROOT)}: {wrong}")
            failed = True
    sys.exit(failed)
