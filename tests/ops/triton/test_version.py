"""Versions of Triton that cannot compile the kernels are refused by name."""

import sys
from types import SimpleNamespace

import pytest
import torch

from acf.errors import MissingDependencyError
from acf.ops.triton import _on_first_call
from acf.ops.triton.version import check_triton


@pytest.mark.parametrize("installed", ["3.4.0", "3.5.1", "2.3.1"])
@pytest.mark.parametrize("capability", [(9, 0), (10, 0)])
def test_a_triton_that_cannot_compile_the_products_is_refused_with_the_remedy(
    installed: str, capability: tuple[int, int]
) -> None:
    with pytest.raises(MissingDependencyError, match=rf"Triton {installed} cannot compile .* install a torch"):
        check_triton(installed, capability)


@pytest.mark.parametrize(
    ("installed", "capability"), [("3.4.0", (8, 0)), ("3.6.0", (9, 0)), ("3.7.1+git", (9, 0)), ("4.0.0", (10, 0))]
)
def test_a_triton_that_compiles_them_is_taken(installed: str, capability: tuple[int, int]) -> None:
    check_triton(installed, capability)


def test_the_first_launch_of_any_kernel_checks_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.4.0"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with pytest.raises(MissingDependencyError, match=r"compute capability 9\.0"):
        _on_first_call("product", "linear")(torch.zeros(2, 2))
