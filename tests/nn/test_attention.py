"""Sparse attention against torch's own module with the same weights, in every way it can be called."""

import copy
import itertools

import pytest
import torch
from torch import nn

import acf
from acf.errors import SparsityError, TopologyError
from acf.nn import BlockSparseLinear, BlockSparseMultiheadAttention, block_sparse_layers
from acf.nn.plan import PlannedLayer

HALF = acf.BlockSparsity(0.5, block=4)
SETTINGS = {
    "batch first": {"batch_first": True},
    "sequence first": {},
    "no bias": {"bias": False, "batch_first": True},
    "other key and value sizes": {"kdim": 8, "vdim": 12},
    "added keys": {"add_bias_kv": True, "add_zero_attn": True},
    "dropout": {"dropout": 0.3, "batch_first": True},
}


def sparse_attention(**settings) -> BlockSparseMultiheadAttention:
    """An attention of 16 features and 4 heads in float64 with random biases, its projections half sparse."""
    dense = nn.MultiheadAttention(16, 4, **settings).double()
    for parameter in dense.parameters():
        nn.init.normal_(parameter)
    model = nn.ModuleDict({"attention": dense})
    summary = acf.sparsify_(model, HALF)
    names = [f"attention.{each}_proj" for each in ("q", "k", "v", "out")]
    assert [layer.name for layer in summary.sparse] == names
    added = "a key or value that attention adds to every sequence"
    assert set(dict(summary.left_dense).values()) == ({added} if "add_bias_kv" in settings else set())
    return model["attention"]


def inputs_of(attention: BlockSparseMultiheadAttention) -> list[torch.Tensor]:
    """Query, key and value: a batch of 2, target length 5, source length 6."""
    shapes = ((2, 5, 16), (2, 6, attention.kdim), (2, 6, attention.vdim))
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    return tensors if attention.batch_first else [each.transpose(0, 1).contiguous() for each in tensors]


def masks_of(kind: str) -> dict[str, torch.Tensor]:
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[0, 4:] = True
    forbidden = torch.rand(5, 6) < 0.3
    forbidden[:, 0] = False
    per_head = torch.randn(8, 5, 6, dtype=torch.float64)
    return {
        "no mask": {},
        "padding": {"key_padding_mask": padding},
        "bool mask": {"attn_mask": forbidden},
        "both": {"key_padding_mask": padding, "attn_mask": forbidden},
        "added per head": {"attn_mask": per_head},
    }[kind]


def assert_same(attention: BlockSparseMultiheadAttention, inputs: list[torch.Tensor], **named) -> None:
    """The outputs, the weights and the gradients of the inputs and of one bias are those of torch's module."""
    results = []
    for module in (attention, attention.to_dense()):
        leaves = [each.clone().requires_grad_() for each in inputs]
        torch.manual_seed(0)  # the same dropout
        output, weights = module(*leaves, **named)
        total = output.sin().sum() if weights is None else output.sin().sum() + weights.square().sum()
        results.append((output, weights, *torch.autograd.grad(total, leaves)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_outputs_weights_and_gradients_are_those_of_torch_with_every_mask(settings):
    attention = sparse_attention(**settings)
    inputs = inputs_of(attention)
    kinds = ("no mask", "padding", "bool mask", "both", "added per head")
    for kind, need_weights in itertools.product(kinds, (False, True)):
        assert_same(attention, inputs, need_weights=need_weights, **masks_of(kind))
    assert_same(attention, inputs, average_attn_weights=False)


@pytest.mark.parametrize("need_weights", [False, True], ids=["output alone", "with weights"])
def test_a_causal_hint_and_inputs_without_a_batch_are_taken_as_torch_takes_them(need_weights):
    attention = sparse_attention()
    x = torch.randn(5, 16, dtype=torch.float64)
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    for batch in (x, x.unsqueeze(1).repeat(1, 2, 1)):
        assert_same(attention, [batch] * 3, attn_mask=causal, is_causal=True, need_weights=need_weights)
    padding = torch.tensor([False, False, False, True, True])
    assert_same(attention, [x] * 3, key_padding_mask=padding, need_weights=need_weights)


def test_weight_gradients_are_the_present_blocks_of_those_of_torch():
    attention = sparse_attention(batch_first=True)
    dense, inputs = attention.to_dense(), inputs_of(attention)
    for module in (attention, dense):
        module(*inputs, need_weights=False)[0].square().sum().backward()
    expected = [*dense.in_proj_weight.grad.chunk(3), dense.out_proj.weight.grad]
    for layer, gradient in zip(block_sparse_layers(attention).values(), expected, strict=True):
        packed = layer.layout.pack(gradient, layer.block_rows, layer.block_cols)
        torch.testing.assert_close(layer.weight.grad, packed)
    torch.testing.assert_close(attention.k_proj.bias.grad, dense.in_proj_bias.grad.chunk(3)[1])


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"attention": nn.MultiheadAttention(16, 2, batch_first=True), "head": nn.Linear(16, 16)})


def run(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model["head"](model["attention"](x, x, x, need_weights=False)[0])


def test_a_moved_model_is_saved_loaded_and_made_dense_again(tmp_path):
    model, x = small_model(), torch.randn(2, 5, 16)
    acf.sparsify_(model, HALF)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    controller = acf.attach(model, optimizer, acf.BlockDST(total_steps=8, every=1))
    for _ in range(4):
        optimizer.zero_grad()
        run(model, x).square().mean().backward()
        optimizer.step()
    assert set(controller.layers) == {*(f"attention.{each}_proj" for each in ("q", "k", "v", "out")), "head"}
    assert any(change.moved_blocks for change in controller.changes)
    controller.detach()
    y = run(model, x)
    other = small_model()
    acf.sparsify_(other, HALF)
    other.load_state_dict(model.state_dict())
    assert torch.equal(run(other, x), y)
    acf.save_sparse(model, tmp_path / "model.safetensors")
    loaded = acf.load_sparse(tmp_path / "model.safetensors", small_model())
    assert torch.equal(run(loaded, x), y)
    assert torch.equal(run(copy.deepcopy(model), x), y)
    torch.testing.assert_close(run(acf.densify_(model), x), y)
    assert type(model["attention"]) is nn.MultiheadAttention
    small_model().load_state_dict(model.state_dict())


def test_attention_is_one_compiled_graph_and_computes_in_bfloat16_under_autocast():
    model = small_model()
    acf.sparsify_(model, HALF)
    attention, x = model["attention"], torch.randn(2, 5, 16)
    torch._dynamo.reset()
    compiled = torch.compile(attention, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, x, x), attention(x, x, x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, expected = (
            each(x, x, x, key_padding_mask=torch.zeros(2, 5).bool()) for each in (attention, attention.to_dense())
        )
    assert y[0].dtype == expected[0].dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=2**-5, atol=2**-5)


def test_a_trace_has_the_four_projections_and_both_products_of_attention():
    model, x = small_model(), torch.randn(2, 5, 16)
    acf.sparsify_(model, HALF)
    attention = nn.Sequential(model["attention"])
    with acf.capture(attention) as trace:
        attention[0](x, x, x, need_weights=False)[0].sum().backward()
    forward = [op.name for op in trace.ops if op.phase == "forward"]
    assert forward == ["0.q_proj", "0.k_proj", "0.v_proj", "0.scores", "0.context", "0.out_proj"]


def test_a_refusal_leaves_torchs_module_in_its_place():
    model = small_model()
    attention = model["attention"]
    with pytest.raises(SparsityError, match=r"block 5 does not divide in_features 16 of layer 'attention\.q_proj'"):
        acf.sparsify_(model, acf.BlockSparsity(0.5, block=5))
    assert model["attention"] is attention


def test_attention_of_which_no_projection_is_taken_stays_torchs_own_and_is_listed_whole():
    model = small_model()
    attention = model["attention"]
    summary = acf.sparsify_(model, HALF, lambda module, name: name == "head")
    assert model["attention"] is attention
    assert summary.left_dense == (("attention", "filter_fn leaves it out"),)


def test_a_part_of_the_projections_can_be_sparse():
    model = small_model()
    summary = acf.sparsify_(model, HALF, lambda module, name: name.endswith("v_proj"))
    assert [layer.name for layer in summary.sparse] == ["attention.v_proj"]
    assert type(model["attention"].v_proj) is BlockSparseLinear
    assert type(model["attention"].q_proj) is nn.Linear
    assert "attention.q_proj" in dict(summary.left_dense)


def hooked(attention: nn.MultiheadAttention) -> None:
    attention.register_forward_hook(lambda *_: None)


def gradient_hooked(attention: nn.MultiheadAttention) -> None:
    attention.in_proj_weight.register_hook(lambda gradient: gradient)


def parametrized(attention: nn.MultiheadAttention) -> None:
    nn.utils.parametrizations.weight_norm(attention, "in_proj_weight")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (hooked, "it has hooks, which its sparse successor would lose"),
        (gradient_hooked, "a hook on the gradient of its weights would be lost"),
        (parametrized, "a ParametrizedMultiheadAttention with a NonDynamicallyQuantizableLinear, whose own behaviour"),
    ],
    ids=["hook", "gradient hook", "parametrization"],
)
def test_attention_that_cannot_be_taken_apart_stays_dense_with_the_reason(change, reason):
    model = small_model()
    change(model["attention"])
    summary = acf.sparsify_(model, HALF)
    assert [layer.name for layer in summary.sparse] == ["head"]
    assert dict(summary.left_dense)["attention"].startswith(reason)


def test_masked_groups_leave_attention_dense_with_the_reason():
    summary = acf.sparsify_(small_model(), acf.NMSparsity(2, 4))
    assert dict(summary.left_dense)["attention.in_proj_weight"].startswith("attention multiplies its packed")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"is_causal": True}, "is_causal says that attn_mask is causal, and there is none"),
        ({"attn_mask": torch.zeros(1, 5)}, r"attn_mask is \[1, 5\] of torch.float32; pass bool or floating point of"),
        ({"key_padding_mask": torch.zeros(2, 5, dtype=torch.int32)}, r"key_padding_mask is \[2, 5\] of torch.int32"),
    ],
    ids=["causal without mask", "mask of another shape", "mask of integers"],
)
def test_a_call_that_torch_refuses_is_refused(named, message):
    model = small_model()
    acf.sparsify_(model, HALF)
    x = torch.randn(2, 5, 16)
    with pytest.raises(SparsityError, match=message):
        model["attention"](x, x, x, **named)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_tensors_are_refused():
    model = small_model()
    acf.sparsify_(model, HALF)
    nested = torch.nested.nested_tensor([torch.randn(3, 16), torch.randn(5, 16)])
    with pytest.raises(SparsityError, match="sparse attention takes no nested tensors"):
        model["attention"](nested, nested, nested)


def test_a_checkpoint_of_dense_attention_is_refused_with_the_remedy_before_anything_is_loaded():
    model, dense = small_model(), small_model()
    nn.init.zeros_(dense["head"].weight)
    acf.sparsify_(model, HALF, lambda module, name: name.endswith("v_proj"))
    with pytest.raises(TopologyError, match=r"attention\.in_proj_weight in the checkpoint is of dense attention"):
        model.load_state_dict(dense.state_dict(), strict=False)
    assert model["head"].weight.count_nonzero()


def test_attention_that_is_the_model_itself_is_refused_with_the_remedy():
    with pytest.raises(SparsityError, match="the model is itself a MultiheadAttention"):
        acf.sparsify_(nn.MultiheadAttention(16, 2), HALF)
    model = small_model()
    acf.sparsify_(model, HALF)
    with pytest.raises(SparsityError, match=r"is itself a BlockSparseMultiheadAttention, .* call its to_dense\(\)"):
        acf.densify_(model["attention"])


def test_a_plan_measures_the_projections_and_is_carried_out():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    attention = layer.self_attn
    planned = acf.plan(layer, torch.randn(2, 5, 16), HALF)
    assert layer.self_attn is attention
    names = [f"self_attn.{each}_proj" for each in ("q", "k", "v", "out")]
    assert set(names) < {each.name for each in planned.layers}
    layers = tuple(PlannedLayer(name, 0.25, 1.0, 0.5) for name in names)
    summary = acf.sparsify_(layer, acf.SparsityPlan(HALF, layers, 2.0, 1.0))
    assert {each.name: each.density for each in summary.sparse} == dict.fromkeys(names, 0.25)
