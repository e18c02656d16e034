"""Inputs that a device would read as others: it has bytes, not shapes."""

import pytest
import torch
from torch import Tensor, nn

import acf
from acf.offloading import OffloadError
from acf.runtime import Device


def sparse_linear() -> nn.Module:
    model = nn.Sequential(nn.Linear(16, 16))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
    return model


LAYERS = {"dense": lambda: nn.Linear(16, 16), "sparse": sparse_linear}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("shape", [(), (8,), (2, 8), (2, 32), (2, 16, 1)])
def test_an_input_of_another_width_is_refused(kind: str, shape: tuple[int, ...]) -> None:
    model = LAYERS[kind]()
    with acf.offload(model, Device("sim", "acf-1")):
        assert model(torch.ones(2, 16)).shape == (2, 16)
        with pytest.raises(OffloadError, match=r"got an input of shape .* and takes \[..., 16\]; pass such a one"):
            model(torch.ones(shape))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(8, 4), r"takes \[batch, 8, h, w\] or \[8, h, w\]"),
        (torch.ones(1, 2, 8, 4, 4), r"takes \[batch, 8, h, w\] or \[8, h, w\]"),
        (torch.ones(2, 16, 4, 4), r"shape \[2, 16, 4, 4\] and takes \[batch, 8, h, w\]"),
        (torch.ones(2, 8, 2, 4), "takes images that hold a kernel of 3 x 3; pass such a one"),
    ],
)
def test_images_that_the_convolution_does_not_take_are_refused(x: Tensor, message: str) -> None:
    model = nn.Conv2d(8, 8, 3)
    with acf.offload(model, Device("sim", "acf-1")):
        assert model(torch.ones(8, 4, 4)).shape == (8, 2, 2)
        with pytest.raises(OffloadError, match=message):
            model(x)
