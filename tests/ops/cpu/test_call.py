"""What a call of a native pass says when it cannot be made, or did not end well."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from acf.errors import MissingDependencyError, TopologyError
from acf.ops.cpu import call
from acf.ops.cpu.call import INSTRUCTION_SETS, instruction_set, run_pass, with_instruction_set

Library = Callable[[SimpleNamespace | None], None]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    """Put another library in the place of the kernels."""
    monkeypatch.setattr(call._Cap, "name", "")
    return lambda other: monkeypatch.setattr(call, "load_library", lambda: other)


def ending_with(status: int, best: int = 0) -> SimpleNamespace:
    return SimpleNamespace(acf_forward=lambda problem, chosen: status, acf_best_instruction_set=lambda: best)


def test_a_pass_that_finds_no_memory_names_the_remedy(library: Library) -> None:
    library(ending_with(1))
    with pytest.raises(MemoryError, match="acf_forward found no memory for its packed operands; use a smaller batch"):
        run_pass("acf_forward", b"")


@pytest.mark.parametrize("status", [2, 3])
def test_a_pass_that_refuses_its_topology_names_the_remedy(library: Library, status: int) -> None:
    library(ending_with(status))
    with pytest.raises(TopologyError, match=rf"\(status {status}\); rebuild it with BlockTopology.build"):
        run_pass("acf_forward", b"")


def test_instructions_that_the_processor_lacks_are_refused_and_change_nothing(library: Library) -> None:
    library(ending_with(0, best=INSTRUCTION_SETS.index("avx2")))
    with (
        pytest.raises(MissingDependencyError, match=r"instructions 'avx512' are not at hand; .* at most avx2"),
        with_instruction_set("avx512"),
    ):
        pass
    assert instruction_set() == "avx2"


def test_without_kernels_there_is_no_instruction_set(library: Library) -> None:
    library(None)
    assert instruction_set() is None
