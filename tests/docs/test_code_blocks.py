"""Every Python block of README and documentation runs as printed, and prints what the page says it prints.

The blocks of a page run in order, in one namespace, in an empty folder. A ``text`` block that directly follows a Python
block is its output: words must be equal, numbers may differ by a twentieth. What stands behind ``python`` says what a
block needs: ``needs: transformers`` is skipped where that cannot be imported, ``needs: torch>=2.9`` with an older one,
and ``no-run: needs a GPU`` is only compiled.
"""

import contextlib
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from acf.cost import DRAM_PJ_PER_BIT

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<info>\w[^\n]*)\n(?P<body>.*?)^```$(?P<after>\s*)", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
TOLERANCE = 0.05


@dataclass(frozen=True)
class Block:
    """A Python block: ``mark`` stands behind the language, ``output`` is the text block after it, if there is one."""

    line: int
    mark: str
    code: str
    output: str | None


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    fences = list(FENCE.finditer(text))
    found = []
    for place, fence in enumerate(fences):
        language, _, mark = fence["info"].partition(" ")
        if language != "python":
            continue
        following = fences[place + 1] if place + 1 < len(fences) else None
        told = following and following["info"] == "text" and following.start() == fence.end()
        output = following["body"] if following and told else None
        found.append(Block(text[: fence.start()].count("\n") + 2, mark.strip(), fence["body"], output))
    return found


def missing_packages(mark: str) -> list[str]:
    needed = mark.removeprefix("needs:").replace(",", " ").split() if mark.startswith("needs:") else []
    return [each for each in needed if not is_installed(*each.split(">="))]


def is_installed(name: str, least: str = "0") -> bool:
    """Whether the package can be imported, in version ``least`` or a later one."""
    return find_spec(name) is not None and release(version(name)) >= release(least)


def release(text: str) -> list[int]:
    """The numbers of a version, without what stands behind them: 2.13.0+cpu is 2, 13, 0."""
    return [int(number) for number in re.findall(r"\d+", text.partition("+")[0])]


def agree(printed: str, expected: str) -> bool:
    """Equal words, and numbers within `TOLERANCE`; blanks between them do not count."""
    numbers = [[float(number.replace(",", "")) for number in NUMBER.findall(text)] for text in (printed, expected)]
    words = [NUMBER.sub("#", text).split() for text in (printed, expected)]
    return words[0] == words[1] and all(
        math.isclose(one, other, rel_tol=TOLERANCE) for one, other in zip(*numbers, strict=True)
    )


@pytest.fixture(autouse=True)
def _cost_table_stays() -> Iterator[None]:
    """A page adds a figure of its own; the tests that follow must not see it."""
    before = dict(DRAM_PJ_PER_BIT)
    yield
    DRAM_PJ_PER_BIT.clear()
    DRAM_PJ_PER_BIT.update(before)


WITH_CODE = [page for page in PAGES if blocks_of(page)]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs_as_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    skipped = []
    for block in blocks_of(page):
        # Lines of a traceback are then lines of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        if block.mark.startswith("no-run:"):
            continue
        if missing := missing_packages(block.mark):
            skipped += missing
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if block.output is not None:
            assert agree(printed.getvalue(), block.output), f"line {block.line} printed\n{printed.getvalue()}"
    if skipped:
        pytest.skip(f"{', '.join(skipped)} is not installed")


def test_every_mark_says_what_a_block_needs() -> None:
    marks = {block.mark for page in WITH_CODE for block in blocks_of(page)}
    assert all(mark == "" or mark.startswith(("needs:", "no-run:")) for mark in marks), marks


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("104,056 cycles", "104,000 cycles", True),
        ("104,056 cycles", "90,000 cycles", False),
        ("U 84%", "U  85%", True),
        ("acf-512: 3", "acf-16384: 3", False),
        ("two lines\nof text", "two lines", False),
    ],
)
def test_output_agrees_in_words_and_nearly_in_numbers(printed: str, expected: str, same: bool) -> None:
    assert agree(printed, expected) is same


def test_a_block_for_a_newer_version_or_another_package_is_skipped() -> None:
    assert missing_packages("needs: torch>=2.8, numpy") == []
    assert missing_packages("needs: torch>=99.0, no_such_package") == ["torch>=99.0", "no_such_package"]
