"""Which modules of the source pytest imports for their doctests: none whose Triton is missing or of another version."""

from importlib.metadata import PackageNotFoundError, version

KERNELS = ["src/acf/ops/triton/*"]
THEIR_BENCHMARKS = [f"src/acf/bench/kernels/{name}.py" for name in ("gpu*", "precompile", "step*", "training_step")]
GLUON = ["src/acf/ops/triton/warp_specialised*"]


def _left_out() -> list[str]:
    try:
        triton = version("triton")
    except PackageNotFoundError:
        return KERNELS + THEIR_BENCHMARKS
    return [] if triton.startswith("3.6.") else GLUON


collect_ignore_glob = _left_out()
