"""The ops computed through dense products agree with the sparse kernels, pass by pass."""

import pytest
import torch
from torch import Tensor, nn

from acf.nn import BlockSparsity, sparsify_
from acf.ops import dense_products, reference
from acf.ops.cpu import kernels
from acf.ops.dense import dense_chosen


def layer_and_input(kind: str, memory_format: torch.memory_format) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if kind == "linear":
        model, x = nn.Sequential(nn.Linear(64, 48)), torch.randn(20, 64)
    else:
        model, x = nn.Sequential(nn.Conv2d(32, 48, 3, stride=2, padding=1)), torch.randn(4, 32, 9, 9)
        x = x.to(memory_format=memory_format)
    sparsify_(model, BlockSparsity(0.75, block=16))
    return model[0], x.requires_grad_()


def passes(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Output, input gradient, weight gradient and the gradient norms of all absent blocks."""
    y = layer(x)
    output_grad = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
    input_grad, weight_grad = torch.autograd.grad(y, (x, layer.weight), output_grad)
    rows, cols = torch.nonzero(~layer.mask(), as_tuple=True)
    return [y, input_grad, weight_grad, layer.gradient_norms(output_grad, x.detach(), rows.int(), cols.int())]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_every_pass_is_the_same_through_dense_products(kind, memory_format):
    layer, x = layer_and_input(kind, memory_format)
    sparse = passes(layer, x)
    with dense_products():
        dense = passes(layer, x)
    for ours, theirs in zip(dense, sparse, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_no_sparse_kernel_runs_within_the_context_and_they_come_back_after_it(monkeypatch):
    called = []
    monkeypatch.setattr(kernels, "run_linear", lambda *args: called.append(args))
    layer, x = layer_and_input("linear", torch.contiguous_format)
    with dense_products():
        passes(layer, x)
        assert dense_chosen()
    assert not called
    assert not dense_chosen()


def test_the_context_ends_with_an_error_too():
    with pytest.raises(KeyError), dense_products():
        raise KeyError
    assert not dense_chosen()


def test_the_reference_gives_the_dense_library_weights_in_the_format_of_the_images():
    layer, _ = layer_and_input("conv", torch.channels_last)
    weight = reference._conv_weight(layer.weight.detach(), layer.topology, layer.settings.geometry, torch.channels_last)
    assert weight.is_contiguous(memory_format=torch.channels_last)
