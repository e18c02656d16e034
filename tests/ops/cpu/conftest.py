"""What the tests of the native kernels share: kernels at any density, and each instruction set in turn."""

from collections.abc import Iterator

import pytest

from acf.ops.cpu import build, call, kernels
from acf.ops.cpu.call import INSTRUCTION_SETS
from tests.ops.cpu.software import compiled_in_software, trapped_in_software


@pytest.fixture
def native_at_any_density(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing to the dense product, however dense the layer."""
    monkeypatch.setattr(kernels, "_pays", lambda *arguments: True)


SOFTWARE = {"amx-trapped": trapped_in_software, "amx-in-software": compiled_in_software}
"""AMX on processors without it."""


@pytest.fixture(params=(*INSTRUCTION_SETS, *SOFTWARE))
def instruction_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each instruction set in turn, as far as this processor and compiler have it, and AMX in software."""
    name = str(request.param)
    if name in SOFTWARE:
        monkeypatch.setattr(build, "_loaded", [SOFTWARE[name]()])
        name = "amx"
    if INSTRUCTION_SETS.index(name) > INSTRUCTION_SETS.index(call.instruction_set() or "portable"):
        pytest.skip(f"{name} is missing: the best here is {call.instruction_set()}")
    with call.with_instruction_set(name):
        yield name


@pytest.fixture
def bfloat16_pairs() -> Iterator[None]:
    """Only where pairs of bfloat16 are multiplied."""
    if call.instruction_set() not in INSTRUCTION_SETS[INSTRUCTION_SETS.index("avx512bf16") :]:
        pytest.skip(f"avx512bf16 is missing: the best here is {call.instruction_set()}")
    with call.with_instruction_set("avx512bf16"):
        yield
