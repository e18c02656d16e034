"""Fused experts of Hugging Face transformers become sparse layers, and the same module again."""

import copy

import pytest
import torch
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.masks import BlockDST
from acf.nn import (
    BlockSparseExpertLinear,
    BlockSparsity,
    UnfusedExperts,
    block_sparse_layers,
    densify_,
    load_sparse,
    save_sparse,
    sparsify_,
    time_layers,
    weight_sparsity,
)
from acf.train import attach

SPEC = BlockSparsity(sparsity=0.75, block=4, rescale=False)


class MixtralExperts(nn.Module):
    """What transformers' class of this name does, and what its decorator notes on it."""

    is_transposed, has_bias = False, False

    def __init__(self, experts: int = 4, hidden: int = 8, intermediate: int = 12) -> None:
        super().__init__()
        self.num_experts = experts
        sizes = (experts, 2 * intermediate, hidden), (experts, hidden, intermediate)
        if self.is_transposed:
            sizes = tuple((count, inputs, outputs) for count, outputs, inputs in sizes)
        self.gate_up_proj, self.down_proj = (nn.Parameter(torch.randn(size)) for size in sizes)
        if self.has_bias:
            self.gate_up_proj_bias = nn.Parameter(torch.randn(experts, 2 * intermediate))
            self.down_proj_bias = nn.Parameter(torch.randn(experts, hidden))
        self.act_fn = nn.SiLU()

    def _apply_gate(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return self.act_fn(gate) * up

    def _linear(self, x: Tensor, name: str, expert: int) -> Tensor:
        weight = getattr(self, name)[expert]
        y = x @ (weight if self.is_transposed else weight.T)
        return y + getattr(self, f"{name}_bias")[expert] if self.has_bias else y

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        y = torch.zeros_like(hidden_states)
        for expert in range(self.num_experts):
            tokens, places = torch.where(top_k_index == expert)
            hidden = self._apply_gate(self._linear(hidden_states[tokens], "gate_up_proj", expert))
            hidden = self._linear(hidden, "down_proj", expert) * top_k_weights[tokens, places, None]
            y = y.index_add(0, tokens, hidden)
        return y


class GptOssExperts(MixtralExperts):
    """Weights ``[experts, in, out]`` with biases, gate and up in turns."""

    is_transposed, has_bias = True, True

    def _apply_gate(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up[..., ::2].clamp(max=7.0), gate_up[..., 1::2].clamp(-7.0, 7.0)
        return (up + 1) * gate * torch.sigmoid(1.7 * gate)


class Llama4TextExperts(nn.Module):
    """Weights ``[experts, in, out]`` and an input that has as many rows for each expert."""

    is_transposed, num_experts = True, 4

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(4, 8, 24))
        self.down_proj = nn.Parameter(torch.randn(4, 12, 8))
        self.act_fn = nn.SiLU()

    def forward(self, hidden_states: Tensor) -> Tensor:
        gate, up = torch.bmm(hidden_states.view(4, -1, 8), self.gate_up_proj).chunk(2, dim=-1)
        return torch.bmm(up * self.act_fn(gate), self.down_proj).view(-1, 8)


for stand_in in (MixtralExperts, GptOssExperts, Llama4TextExperts):
    stand_in.__module__ = "transformers.models.stand_in"


class Block(nn.Module):
    """A router and experts, as a layer of a model has them."""

    def __init__(self, experts: nn.Module) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.randn(4, 8))
        self.experts = experts

    def forward(self, x: Tensor) -> Tensor:
        return self.experts(x, *self.routed(x))

    def routed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights, chosen = (x @ self.gate.T).detach().softmax(-1).topk(2)
        return chosen, weights


def arguments(model: Block, experts: nn.Module) -> tuple[Tensor, ...]:
    x = torch.randn(12, 8)
    return (x,) if isinstance(experts, Llama4TextExperts) else (x, *model.routed(x))


@pytest.mark.parametrize("experts_class", [MixtralExperts, GptOssExperts, Llama4TextExperts])
def test_sparse_experts_compute_what_the_module_does_with_the_dropped_blocks_zero(experts_class):
    model = Block(experts_class())
    original = model.experts
    args = arguments(model, original)
    sparsify_(model, SPEC)
    assert type(model.experts) is UnfusedExperts
    assert type(model.experts.gate_up_proj) is BlockSparseExpertLinear
    y = model.experts(*args)
    y.square().sum().backward()
    gradient = model.experts.down_proj.weight.grad
    packed = model.experts.down_proj
    densify_(model)
    assert model.experts is original
    assert float((original.down_proj == 0).float().mean()) == 0.75
    torch.testing.assert_close(y, original(*args))
    original(*args).square().sum().backward()
    dense = original.down_proj.grad.transpose(1, 2) if original.is_transposed else original.down_proj.grad
    expected = packed.layout.pack(dense.reshape(-1, dense.shape[-1]), packed.block_rows, packed.block_cols)
    torch.testing.assert_close(gradient, expected)


def test_the_summary_counts_the_experts_and_names_what_stays_dense():
    model = Block(MixtralExperts())
    summary = sparsify_(model, SPEC)
    assert [layer.name for layer in summary.sparse] == ["experts.gate_up_proj", "experts.down_proj"]
    assert summary.sparsity == 0.75
    weights = 4 * (24 * 8 + 8 * 12)
    assert summary.dense_weights == 4 * 8
    assert summary.model_sparsity == weight_sparsity(model) == pytest.approx(0.75 * weights / (weights + 32))
    assert dict(summary.left_dense) == {"gate": "Block has no sparse form (4 x 8 weights)"}


def test_biases_of_experts_are_no_weights():
    model = Block(GptOssExperts())
    assert sparsify_(model, SPEC).dense_weights == 4 * 8


def test_a_weight_too_thin_for_a_block_stays_dense_beside_a_sparse_one():
    model = Block(MixtralExperts(intermediate=2))
    reasons = dict(sparsify_(model, SPEC).left_dense)
    assert reasons["experts.down_proj"] == "its 8 x 2 outputs x inputs are thinner than a 4 x 4 block"
    assert list(block_sparse_layers(model)) == ["experts.gate_up_proj"]


def test_what_is_refused_leaves_the_fused_module_in_its_place():
    model = Block(MixtralExperts(hidden=8, intermediate=5))
    original, weight = model.experts, model.experts.gate_up_proj
    with pytest.raises(SparsityError, match="does not divide"):
        sparsify_(model, SPEC)
    assert model.experts is original
    assert model.experts.gate_up_proj is weight


def test_experts_of_no_known_form_stay_dense_and_are_listed():
    class OtherExperts(MixtralExperts):
        has_post_expert_norm = True

    OtherExperts.__module__ = "transformers.models.stand_in"
    model = nn.ModuleDict({"experts": OtherExperts(), "head": nn.Linear(8, 8)})
    reasons = dict(sparsify_(model, SPEC).left_dense)
    assert reasons["experts.down_proj"] == "OtherExperts has no sparse form (4 x 8 x 12 weights)"
    hooked = nn.ModuleDict({"experts": MixtralExperts(), "head": nn.Linear(8, 8)})
    hooked["experts"].register_forward_hook(lambda *_: None)
    assert dict(sparsify_(hooked, SPEC).left_dense)["experts.down_proj"].startswith("it has hooks")


def test_a_filter_can_leave_experts_or_one_of_their_layers_out():
    model = Block(MixtralExperts())
    sparsify_(model, SPEC, filter_fn=lambda module, name: name.endswith("gate_up_proj"))
    assert list(block_sparse_layers(model)) == ["experts.gate_up_proj"]
    x = torch.randn(9, 8)
    y = model(x)
    torch.testing.assert_close(densify_(model)(x), y)
    assert type(model.experts) is MixtralExperts


def test_a_saved_model_loads_into_a_dense_one_with_fused_experts(tmp_path):
    model = Block(MixtralExperts())
    sparsify_(model, SPEC)
    save_sparse(model, tmp_path / "model.safetensors")
    loaded = load_sparse(tmp_path / "model.safetensors", Block(MixtralExperts()))
    x = torch.randn(9, 8)
    assert torch.equal(loaded(x), model(x))
    assert torch.equal(copy.deepcopy(loaded)(x), model(x))


def test_layers_of_experts_are_timed_and_the_model_is_left_as_it_is():
    model = Block(MixtralExperts())
    original = model.experts
    timings = {timing.name: timing for timing in time_layers(model, torch.randn(9, 8), SPEC, rounds=1)}
    assert timings["experts.down_proj"].layer == "linear 12 to 8, 4 experts"
    assert timings["experts.down_proj"].ratio is not None
    assert model.experts is original


@pytest.mark.filterwarnings("default")
def test_a_tiny_mixtral_trains_with_sparse_experts_that_move(tmp_path):
    transformers = pytest.importorskip("transformers", "5", reason="experts are fused in transformers 5")
    config = transformers.MixtralConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
        vocab_size=64, num_local_experts=4,
    )  # fmt: skip
    model = transformers.MixtralForCausalLM(config)
    experts_class = type(model.model.layers[0].mlp.experts)
    summary = sparsify_(model, BlockSparsity(sparsity=0.75, block=8))
    assert sum(layer.name.endswith(("experts.gate_up_proj", "experts.down_proj")) for layer in summary.sparse) == 2
    assert summary.sparsity == 0.75
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    controller = attach(model, optimizer, BlockDST(total_steps=20, every=3))
    tokens = torch.randint(64, (4, 16))
    for _ in range(7):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
    assert any(change.moved_blocks for change in controller.changes if "experts" in change.layer)
    controller.detach()
    model.save_pretrained(tmp_path)
    loaded = load_sparse(tmp_path, transformers.MixtralForCausalLM(config)).eval()
    assert torch.equal(loaded(input_ids=tokens).logits, model.eval()(input_ids=tokens).logits)
    logits = model.eval()(input_ids=tokens).logits
    torch.testing.assert_close(densify_(model)(input_ids=tokens).logits, logits)
    assert type(model.model.layers[0].mlp.experts) is experts_class
    model.save_pretrained(tmp_path)
    fused_again = transformers.MixtralForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(fused_again(input_ids=tokens).logits, logits)
