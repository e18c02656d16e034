"""Measures a CPU step in a process of its own, whose environment limits instructions and keeps freed memory.

Both are read when a process starts, by glibc and by the dense libraries.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict

from acf.bench.kernels.cpu_step import CpuStep, CpuStepSpec, measure_cpu_step
from acf.errors import MissingDependencyError

MEMORY_KEPT = str(1 << 34)
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": MEMORY_KEPT, "MALLOC_MMAP_THRESHOLD_": MEMORY_KEPT}
"""glibc keeps freed memory. By default it returns large tensors to the system, and every step faults them in anew."""

LIMITED = (
    *("ACF_CPU_ISA", "ATEN_CPU_CAPABILITY", "TORCHINDUCTOR_CPP_MARCH"),
    *("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"),
)
"""What limits the sparse kernels, torch's own loops, compiled loops, oneDNN and MKL."""

LIMITS: dict[str, tuple[str, ...]] = {
    "": (),
    "portable": ("portable", "default", "x86-64", "SSE41", "SSE4_2"),
    "avx2": ("avx2", "avx2", "x86-64-v3", "AVX2", "AVX2"),
    "avx512": ("avx512", "avx512", "x86-64-v4", "AVX512_CORE", "AVX512"),
    "avx512bf16": ("avx512bf16", "avx512", "x86-64-v4", "AVX512_CORE_BF16", "AVX512"),
    "amx": ("amx", "avx512", "sapphirerapids", "AVX512_CORE_AMX", "AVX512_E4"),
}
"""The values of `LIMITED` for each instruction set of the sparse kernels."""


def step_environment(instructions: str) -> dict[str, str]:
    """The variables that a step's process gets besides those of this one.

    >>> step_environment("avx2")["ONEDNN_MAX_CPU_ISA"]
    'AVX2'
    """
    return KEEP_MEMORY | dict(zip(LIMITED, LIMITS[instructions], strict=False))


def measure_in_process(spec: CpuStepSpec) -> CpuStep:
    """`measure_cpu_step` in a new process with the limits of ``spec.instructions``."""
    done = subprocess.run(
        [sys.executable, "-m", "acf.bench.kernels.cpu_step_process"],
        input=json.dumps(asdict(spec)),
        env=os.environ | step_environment(spec.instructions),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        raise MissingDependencyError(f"the step of {spec.network} failed: {reason}; torch.compile needs a C++ compiler")
    return CpuStep.from_record(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Read a spec from standard input, write the record as the last line of standard output."""
    print(json.dumps(measure_cpu_step(CpuStepSpec(**json.load(sys.stdin))).record()))


if __name__ == "__main__":
    main()
