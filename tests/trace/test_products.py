"""Products without a layer: attention's scores and contexts are captured with all their gradients."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import acf
from acf.lowering import dense_macs, matrix_products
from acf.sim import ARCHITECTURES
from acf.sim.accelerators import TensorCore
from acf.trace import BitTensor, TracedOp
from acf.zoo.networks.transformer import SelfAttention

BATCH, HEADS, TOKENS, WIDTH = 2, 2, 5, 8


class Attention(nn.Module):
    """Attention of projected tokens; options go to torch's function."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.inputs = nn.Linear(WIDTH, 3 * HEADS * WIDTH)
        self.options = options

    def forward(self, tokens: Tensor) -> Tensor:
        split = self.inputs(tokens).reshape(*tokens.shape[:2], 3, HEADS, WIDTH)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value, **self.options)


class Bare(nn.Module):
    """A function of the input and one parameter, beside a layer that makes it capturable."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x), self.weight)


def captured(model: nn.Module, x: Tensor) -> acf.Trace:
    with acf.capture(model) as trace:
        model(x).square().sum().backward()
    return trace


def products(trace: acf.Trace) -> list[TracedOp]:
    return [op for op in trace.ops if not op.weighted]


def test_attention_is_two_products_and_four_gradients_in_the_order_they_run() -> None:
    trace = captured(SelfAttention(16, 4), torch.randn(BATCH, TOKENS, 16))
    assert [(op.name, op.phase) for op in trace.ops] == [
        ("inputs", "forward"),
        ("SelfAttention.scores", "forward"),
        ("SelfAttention.context", "forward"),
        ("output", "forward"),
        ("output", "weight_grad"),
        ("output", "input_grad"),
        ("SelfAttention.context", "weight_grad"),
        ("SelfAttention.context", "input_grad"),
        ("SelfAttention.scores", "weight_grad"),
        ("SelfAttention.scores", "input_grad"),
        ("inputs", "weight_grad"),
    ]
    macs = BATCH * 4 * TOKENS * TOKENS * 4
    assert [sum(gemm.dense_macs for gemm in matrix_products(trace, op)) for op in products(trace)] == [macs] * 6


def test_the_operands_are_those_that_unfused_attention_has() -> None:
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    model = Attention(attn_mask=causal)
    trace = captured(model, torch.randn(BATCH, TOKENS, WIDTH))
    shares = trace.tensors["Attention.context.left"].to_bool()
    assert np.array_equal(shares, np.broadcast_to(causal.numpy(), (BATCH * HEADS, TOKENS, TOKENS)))
    # Gradients of masked scores are exactly zero, and those of the scores are the left operand of both gradients.
    gradients = trace.tensors["Attention.scores.output_grad"].to_bool()
    assert not gradients[:, ~causal.numpy()].any()
    assert {op.a for op in products(trace) if op.name.endswith("scores") and op.phase != "forward"} == {
        "Attention.scores.output_grad"
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.tensor([[True, True, False, True, False]])},
        {"attn_mask": torch.linspace(-2, 2, TOKENS)[None]},
    ],
    ids=["plain", "causal", "scaled", "masked", "biased"],
)
def test_capturing_alters_neither_output_nor_gradients(options: dict[str, object]) -> None:
    model, x = Attention(**options), torch.randn(BATCH, TOKENS, WIDTH)
    plain = model(x)
    plain.square().sum().backward()
    gradient = model.inputs.weight.grad.clone()
    model.zero_grad()
    with acf.capture(model):
        unfused = model(x)
        unfused.square().sum().backward()
    assert torch.allclose(unfused, plain, atol=1e-5)
    assert torch.allclose(model.inputs.weight.grad, gradient, rtol=1e-4, atol=1e-5)


def test_grouped_queries_share_their_keys() -> None:
    query, key = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 3, 8)

    def attend(x: Tensor, weight: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, key, enable_gqa=True) + x.sum()

    model = Bare(attend)
    with acf.capture(model):
        seen = model(torch.zeros(1, 6))
    assert torch.allclose(seen, model(torch.zeros(1, 6)), atol=1e-5)


def test_dropout_within_attention_is_in_the_trace() -> None:
    trace = captured(Attention(dropout_p=0.5), torch.randn(BATCH, TOKENS, WIDTH))
    assert 0.2 < trace.tensors["Attention.context.left"].density < 0.8


@pytest.mark.parametrize("function", [torch.matmul, lambda a, b: a @ b, lambda a, b: a.matmul(b)])
def test_a_product_with_a_parameter_is_one_with_a_weight(function: object) -> None:
    trace = captured(Bare(lambda x, weight: function(x, weight.t())), torch.randn(2, 3, 6))
    ops = {op.phase: op for op in trace.ops if op.name == "Bare.matmul"}
    assert ops["forward"].roles == ("activation", "weight")
    assert not ops["forward"].batched
    assert ops["forward"].transpose_b  # the parameter lies as [out, in], like a layer's
    (gemm,) = matrix_products(trace, ops["weight_grad"])
    assert (gemm.m, gemm.k, gemm.n) == (4, 6, 6)


def test_every_call_has_a_name_of_its_own_and_layers_are_not_seen_twice() -> None:
    model = Bare(lambda x, weight: torch.bmm(torch.bmm(x, x.transpose(1, 2)), x))
    trace = captured(model, torch.randn(2, 3, 6))
    assert [op.name for op in trace.ops if op.phase == "forward"] == ["layer", "Bare.matmul", "Bare.matmul#1"]
    assert trace.tensors["Bare.matmul.left"].shape == (2, 3, 6)


def test_attention_that_hides_its_products_is_named_in_a_warning() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.warns(UserWarning, match=r"self_attn is an nn\.MultiheadAttention"), acf.capture(model) as trace:
        model(torch.randn(2, 3, 8)).sum().backward()
    assert {op.name for op in trace.ops} == {"linear1", "linear2"}


def test_products_outside_the_model_are_not_part_of_its_step() -> None:
    model = nn.Linear(4, 4)
    with acf.capture(model) as trace:
        y = model(torch.randn(3, 4))
        (y @ y.t()).sum().backward()
    assert {op.name for op in trace.ops} == {"Linear"}


def test_a_model_that_fails_leaves_no_hook_behind() -> None:
    def fail(x: Tensor, weight: Tensor) -> Tensor:
        raise ValueError("on purpose")

    model = Bare(fail)
    with pytest.raises(ValueError, match="on purpose"), acf.capture(model):
        model(torch.randn(2, 6))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_trace_with_attention_survives_its_file_and_plays_everywhere(tmp_path: Path) -> None:
    trace = captured(SelfAttention(16, 4), torch.randn(BATCH, TOKENS, 16))
    trace.save(tmp_path / "attention.safetensors")
    loaded = acf.Trace.load(tmp_path / "attention.safetensors")
    assert loaded.ops == trace.ops
    for name in ARCHITECTURES:
        result = acf.simulate(loaded, name)
        assert sum(op.dense_macs for op in result.ops) == dense_macs(trace)


def test_no_engine_updates_what_is_no_weight() -> None:
    spec = acf.sim.spec("sat", update_lanes=1)
    result = acf.simulate(captured(SelfAttention(16, 4), torch.randn(BATCH, TOKENS, 16)), spec)
    waits = {op.name: op.lost_slots["engines"] for op in result.ops if op.phase == "weight_grad"}
    assert waits["SelfAttention.scores"] == waits["SelfAttention.context"] == 0
    assert waits["output"] > 0


@pytest.mark.parametrize("spec", [acf.sim.spec("tensorcore"), acf.sim.spec("tensordash")], ids=["dense", "dash"])
def test_heads_share_the_cores_of_a_machine(spec: TensorCore) -> None:
    rng = np.random.default_rng(0)
    tensors = {name: BitTensor.from_array(rng.random((64, 8, 64)) < 0.5) for name in ("a", "b")}
    op = TracedOp("scores", "forward", "a", "b", transpose_b=True, batched=True, weighted=False)
    together = acf.simulate(acf.Trace([op], tensors), spec)
    alone = [
        acf.simulate(acf.Trace.from_matmuls([acf.Matmul("head", "forward", a, b.T)]), spec)
        for a, b in zip(tensors["a"].to_bool(), tensors["b"].to_bool(), strict=True)
    ]
    # 4 tiles of a head leave 252 of 256 cores idle; 64 heads fill them all, once.
    assert sum(op.effectual_macs for op in together.ops) == sum(each.ops[0].effectual_macs for each in alone)
    assert together.ops[0].cycles - together.stalls["memory"] == max(
        each.cycles - each.stalls["memory"] for each in alone
    )
