"""Capturing real training steps."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

import acf
from acf.errors import TraceError
from acf.lowering import dense_macs
from acf.trace import BitTensor


def small_cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, 16),
        nn.ReLU(),
        nn.Linear(16, 10),
    )


def captured(model: nn.Module, x: torch.Tensor) -> acf.Trace:
    with acf.capture(model, label="test") as trace:
        model(x).square().sum().backward()
    return trace


def test_all_three_passes_of_every_layer_are_recorded_in_the_order_they_run() -> None:
    trace = captured(small_cnn(), torch.randn(4, 1, 8, 8))
    assert [(op.name, op.phase) for op in trace.ops] == [
        ("0", "forward"),
        ("2", "forward"),
        ("5", "forward"),
        ("7", "forward"),
        ("7", "weight_grad"),
        ("7", "input_grad"),
        ("5", "weight_grad"),
        ("5", "input_grad"),
        ("2", "weight_grad"),
        ("2", "input_grad"),
        ("0", "weight_grad"),  # the first layer is fed with data: nobody computes its input gradient
    ]


def test_the_operands_are_those_of_the_real_step() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    x = torch.randn(5, 6)
    hidden = torch.relu(model[0](x)).detach()
    trace = captured(model, x)
    assert np.array_equal(trace.tensors["2.activation"].to_bool(), (hidden != 0).numpy())
    output = model(x).detach()
    hidden_grad = 2 * output @ model[2].weight.detach() * (hidden > 0)
    assert np.array_equal(trace.tensors["0.output_grad"].to_bool(), (hidden_grad != 0).numpy())


def test_dense_macs_are_those_of_the_layers() -> None:
    trace = captured(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)), torch.randn(5, 6))
    assert dense_macs(trace) == 5 * 6 * 16 * 2 + 5 * 16 * 3 * 3


def test_a_sparse_layer_needs_the_gradient_of_its_present_blocks_only() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    acf.sparsify_(model, acf.BlockSparsity(0.75, block=16))
    trace = captured(model, torch.randn(8, 64))
    weight_grad = next(op for op in trace.ops if op.phase == "weight_grad" and op.name == "2")
    assert trace.tensors[weight_grad.needed].nonzeros == 4 * 16 * 16
    assert np.array_equal(trace.tensors[weight_grad.needed].to_bool(), trace.tensors["2.weight"].to_bool())


def test_a_sparse_layer_and_its_dense_twin_give_the_same_patterns() -> None:
    model = small_cnn()
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=16))
    x = torch.randn(2, 1, 8, 8)
    sparse = captured(model, x)
    dense = captured(acf.densify_(model), x)
    for key, bits in dense.tensors.items():
        assert np.array_equal(bits.packed, sparse.tensors[key].packed), key


def test_a_layer_called_twice_is_recorded_twice_with_one_weight() -> None:
    layer = nn.Linear(8, 8)
    trace = captured(nn.Sequential(layer, nn.ReLU(), layer), torch.randn(3, 8))
    assert [op.name for op in trace.ops if op.phase == "forward"] == ["0", "0#1"]
    assert [key for key in trace.tensors if key.endswith("weight")] == ["0.weight"]


def test_a_frozen_layer_has_no_weight_gradient() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model[2].weight.requires_grad_(False)
    trace = captured(model, torch.randn(3, 8))
    assert ("2", "weight_grad") not in [(op.name, op.phase) for op in trace.ops]


def test_hooks_are_gone_after_the_block() -> None:
    model = small_cnn()
    trace = captured(model, torch.randn(2, 1, 8, 8))
    count = len(trace.ops)
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    assert len(trace.ops) == count


@pytest.mark.parametrize("padding_mode", ["reflect", "circular"])
def test_padding_with_values_is_part_of_the_activation(padding_mode: str) -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, padding_mode=padding_mode))
    x = torch.rand(1, 2, 5, 5)
    trace = captured(model, x)
    padded = nn.functional.pad(x, (1, 1, 1, 1), mode=padding_mode)
    assert np.array_equal(trace.tensors["0.activation"].packed, BitTensor.from_array(padded).packed)
    assert trace.ops[0].conv is not None
    assert trace.ops[0].conv.padding == (0, 0)


def test_keyword_arguments_and_unbatched_images_are_captured() -> None:
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.conv(input=x)
            return y

    trace = captured(Keyword(), torch.rand(2, 5, 5))
    assert trace.tensors["conv.activation"].shape == (1, 2, 5, 5)


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(acf.AcfError, match="ReLU has no linear or convolution layer"), acf.capture(nn.ReLU()):
        pass


def test_a_block_in_which_nothing_runs_is_refused() -> None:
    with pytest.raises(acf.AcfError, match="no layer ran inside the capture block"), acf.capture(nn.Linear(2, 2)):
        pass


def test_an_nm_layer_is_recorded_with_the_weights_of_each_pass():
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8))
    acf.sparsify_(model, acf.NMSparsity(n=2, m=8))
    with acf.capture(model) as trace:
        model(torch.randn(4, 8)).sum().backward()
    ops = {(op.name, op.phase): op for op in trace.ops}
    assert ("0", "input_grad") not in ops
    layer = model[1]
    forward, backward = (trace.tensors[ops["1", phase].b].to_bool() for phase in ("forward", "input_grad"))
    assert (forward == layer.forward_mask.numpy()).all()
    assert (backward == layer.backward_mask.numpy()).all()
    assert ops["1", "weight_grad"].needed is None


def test_a_transposed_convolution_is_the_convolution_whose_input_gradient_it_is() -> None:
    model = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1, bias=False))
    trace = captured(model, torch.randn(1, 4, 3, 5).requires_grad_())
    forward, weight_grad, input_grad = trace.ops
    assert [op.phase for op in trace.ops] == ["input_grad", "weight_grad", "forward"]
    assert (forward.roles, input_grad.roles) == (("activation", "weight"), ("gradient", "weight"))
    assert weight_grad.operands == (forward.a, input_grad.a)
    assert weight_grad.roles == ("activation", "gradient")
    assert forward.conv is not None
    assert (forward.conv.input_size, forward.conv.output_map) == ((6, 10), (3, 5))
    assert dense_macs(trace) > 0


def test_a_grouped_3d_convolution_costs_what_its_groups_multiply() -> None:
    groups, x = 2, torch.randn(2, 4, 5, 6, 6).requires_grad_()
    model = nn.Sequential(nn.Conv3d(4, 6, (3, 2, 2), groups=groups, bias=False))
    trace = captured(model, x)
    forward = next(op for op in trace.ops if op.phase == "forward")
    outputs = model(x).numel()
    single = acf.Trace([forward], trace.tensors, "forward")
    assert dense_macs(single) == outputs * (4 // groups) * 3 * 2 * 2


def test_experts_are_left_out_of_a_trace_with_a_warning() -> None:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.experts = nn.Linear(8, 4), acf.Experts(4, 8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights, chosen = self.router(x).softmax(-1).topk(2)
            return self.experts(x, chosen, weights)

    model = Mixture()
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4), filter_fn=lambda layer, name: "experts" in name)
    with (
        pytest.warns(UserWarning, match=r"experts.gate_up_proj multiplies by several experts"),
        acf.capture(model) as trace,
    ):
        model(torch.randn(6, 8)).sum().backward()
    assert {op.name for op in trace.ops} == {"router"}


def test_a_model_that_another_thread_captures_is_refused_and_captured_afterwards() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    errors: list[Exception] = []

    def capture_too() -> None:
        try:
            with acf.capture(model):
                model(torch.ones(2, 8)).sum().backward()
        except TraceError as error:
            errors.append(error)

    with acf.capture(model) as trace:
        thread = threading.Thread(target=capture_too)
        thread.start()
        thread.join()
        model(torch.ones(2, 8)).sum().backward()
    assert "is being captured by another thread" in str(errors[0])
    alone = len(trace.ops)
    with acf.capture(model) as trace:
        model(torch.ones(2, 8)).sum().backward()
    assert len(trace.ops) == alone
