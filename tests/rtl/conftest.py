"""What the RTL tests share: every backend that this machine has."""

import pytest

from acf.rtl.tools.simulation import Simulation
from acf.rtl.tools.verilator import VerilatorUnavailableError, find_verilator


def skip_without_verilator() -> None:
    """Skip a test where nothing can be compiled, with the reason."""
    from acf.ops.cpu.build import KernelBuildError, find_compiler

    try:
        find_verilator()
        find_compiler()
    except (VerilatorUnavailableError, KernelBuildError) as error:
        pytest.skip(str(error))


@pytest.fixture
def verilator() -> None:
    """For tests that need a compiled model."""
    skip_without_verilator()


@pytest.fixture(params=["pysim", "verilator"])
def simulate(request: pytest.FixtureRequest):
    """A function from a component to its `Simulation`, on each backend."""
    if request.param == "verilator":
        skip_without_verilator()
    return lambda component: Simulation(component, backend=request.param)


@pytest.fixture
def interpret():
    """A function from a component to its `Simulation` in Amaranth's simulator, for variants that need no build."""
    return lambda component: Simulation(component, backend="pysim")
