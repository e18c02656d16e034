"""The Triton kernels agree with the reference. They run in Triton's interpreter, so no GPU is needed.

The interpreter must be chosen before Triton is imported, so the tests of `tests/ops/triton/test_*_interpreted.py` run
in a process of their own.
"""

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed (it comes with CUDA builds of torch)", allow_module_level=True)

GLUON = "test_warp_specialised_kernels_interpreted.py"
"""The kernels in Gluon are for Triton 3.6 alone."""
FILES = [
    str(path)
    for path in sorted((Path(__file__).parent / "triton").glob("test_*_interpreted.py"))
    if path.name != GLUON or version("triton").startswith("3.6.")
]


def test_kernels_agree_with_the_reference_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *FILES]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "ACF_AUTOTUNE": "0"}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_importing_the_package_does_not_import_triton() -> None:
    code = "import sys, acf.ops.triton; assert 'acf.ops.triton.product' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
