"""What every test runs under: one thread, a fixed seed, and a short deterministic Hypothesis profile."""

import gc

import hypothesis
import pytest
import torch

from acf.ops.cpu.build import load_library

hypothesis.settings.register_profile("acf", deadline=None, max_examples=25, derandomize=True, database=None)
hypothesis.settings.load_profile("acf")

torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    """Build the native CPU kernels before there are workers, each of which would build them at the same time."""
    if config.getoption("numprocesses", default=None):
        load_library()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the simulator's tests first: of two workers, one compiles the simulators while the other runs torch's tests.

    In alphabetical order both begin with tests that simulate a fabric, and each compiles all of its loops for itself.
    """
    items.sort(key=lambda item: not item.nodeid.startswith("tests/sim/"))


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collection, and collect the rest less often.

    They stay until the end, and searching them took a quarter of the time in which Amaranth and numba build graphs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="module")
def few_collected_objects() -> None:
    """For tests that collect garbage often: what earlier tests have left is not searched again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)
