"""The process of a CPU step: dense and sparse get the same limits."""

import pytest

from acf.bench.kernels import cpu_step_process
from acf.bench.kernels.cpu_step import CpuStepSpec
from acf.bench.kernels.cpu_step_process import LIMITED, LIMITS, measure_in_process, step_environment
from acf.errors import MissingDependencyError
from acf.ops.cpu.call import INSTRUCTION_SETS


def test_every_instruction_set_limits_every_library() -> None:
    assert set(LIMITS) == {"", *INSTRUCTION_SETS}
    assert all(set(LIMITED) <= set(step_environment(name)) for name in INSTRUCTION_SETS)
    assert not set(LIMITED) & set(step_environment(""))
    assert all(step_environment(name)["ACF_CPU_ISA"] == name for name in INSTRUCTION_SETS)


def test_a_step_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_step_process.sys, "executable", "/bin/false")
    with pytest.raises(MissingDependencyError, match="the step of mixer-s16 failed: no message"):
        measure_in_process(CpuStepSpec("mixer-s16", block=32, sparsity=0.9))
