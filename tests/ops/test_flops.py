"""Torch's own counter sees what the sparse products cost."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from acf.nn import BlockSparsity, ExpertLinear, sparsify_
from acf.nn.summary import block_sparse_layers
from acf.ops import block_conv2d_for_batch_norm


def counted(model: torch.nn.Module, x: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    return int(counter.get_total_flops())


def test_a_linear_layer_costs_its_stored_weights_once_per_token_and_pass() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 32))
    x = torch.randn(3, 5, 64, requires_grad=True)
    dense = counted(model, x)
    sparsify_(model, BlockSparsity(0.75, block=16))
    assert counted(model, x) * 4 == dense == 3 * 2 * 15 * 64 * 32


def test_a_convolution_costs_its_stored_weights_once_per_output_pixel_and_pass() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(32, 32, 3, stride=2, padding=1))
    x = torch.randn(2, 32, 8, 6, requires_grad=True)
    sparsify_(model, BlockSparsity(0.5, block=16))
    (layer,) = block_sparse_layers(model).values()
    assert counted(model, x) == 3 * 2 * (2 * 4 * 3) * layer.weight.numel()


def test_batch_statistics_add_nothing_to_what_a_convolution_costs() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(32, 32, 3, stride=2, padding=1))
    x = torch.randn(2, 32, 8, 6, requires_grad=True)
    sparsify_(model, BlockSparsity(0.5, block=16))
    layer = model[0]
    with FlopCounterMode(display=False) as counter:
        block_conv2d_for_batch_norm(
            x, layer.weight, layer.topology, layer.settings.geometry, layer.bias
        ).sum().backward()
    assert int(counter.get_total_flops()) == counted(model, x)


def test_a_transposed_convolution_costs_its_stored_weights_once_per_input_pixel_and_pass() -> None:
    model = torch.nn.Sequential(torch.nn.ConvTranspose2d(32, 32, 3, stride=2, padding=1))
    x = torch.randn(2, 32, 4, 3, requires_grad=True)
    sparsify_(model, BlockSparsity(0.5, block=16))
    (layer,) = block_sparse_layers(model).values()
    assert counted(model, x) == 3 * 2 * (2 * 4 * 3) * layer.weight.numel()


def test_experts_cost_their_share_of_the_stored_weights_once_per_token_and_pass() -> None:
    model = torch.nn.Sequential(ExpertLinear(4, 64, 32))
    x = torch.randn(12, 64, requires_grad=True)
    dense = counted(model, x)
    sparsify_(model, BlockSparsity(0.75, block=16))
    assert counted(model, x) * 4 == dense == 3 * 2 * 12 * 64 * 32
