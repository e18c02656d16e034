"""What the tests of the native kernels share: kernels at any density, and each instruction set in turn."""

from collections.abc import Iterator

import pytest

from acf.ops.cpu import call, kernels
from acf.ops.cpu.call import INSTRUCTION_SETS


@pytest.fixture
def native_at_any_density(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing to the dense product, however dense the layer."""
    monkeypatch.setattr(kernels, "_pays", lambda *arguments: True)


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set in turn, as far as this processor and compiler have it."""
    name = str(request.param)
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
