"""Gradient sparsification inside models: which layers, composition with sparse weights, checkpoints, compilation."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import acf
from acf.errors import SparsityError
from acf.gradients import RULES, GradientSparsifier, tracking
from acf.nn import BlockSparsity, NMSparsity, densify_, sparsify_

HALF = acf.GradientSparsity(target=0.5)
WEIGHTS = {"block": BlockSparsity(0.5, block=8), "n:m": NMSparsity(2, 8)}


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(inplace=True), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 8))


def convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(16 * 16, 8),
    )


MODELS = {"linear": (mlp, (16, 8)), "tokens": (mlp, (4, 5, 8)), "convolution": (convnet, (4, 8, 4, 4))}
each_model = pytest.mark.parametrize(("make_model", "shape"), MODELS.values(), ids=MODELS.keys())


def train(model: nn.Module, shape: tuple[int, ...], steps: int, optimizer: torch.optim.Optimizer | None = None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


@each_model
def test_the_layer_computes_both_its_gradients_from_the_sparse_output_gradient(make_model, shape):
    model = make_model()
    sparsify_(model, acf.GradientSparsity(0.5, method="static", threshold=0.05), lambda module, name: name == "2")
    plain = densify_(copy.deepcopy(model))
    seen = {}

    def keep_small_out(module, args, output):
        output.register_hook(
            lambda gradient: seen.setdefault("sparse", torch.where(gradient.abs() < 0.05, 0, gradient))
        )
        return output.clone()

    plain[2].register_forward_hook(keep_small_out)
    x = torch.randn(shape)
    for each in (model, plain):
        each(x).square().sum().backward()
    assert 0.1 < (seen["sparse"] == 0).float().mean() < 0.999
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@each_model
def test_the_forward_pass_is_unchanged(make_model, shape):
    model = make_model().eval()
    x = torch.randn(shape)
    expected = model(x)
    sparsify_(model, HALF)
    assert torch.equal(model(x), expected)
    with torch.no_grad():
        assert torch.equal(model(x), expected)


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS.keys())
@pytest.mark.parametrize("gradients_first", [True, False])
@each_model
def test_weights_and_gradients_are_sparsified_in_either_order(make_model, shape, weights, gradients_first):
    torch.manual_seed(1)
    model = make_model()
    for spec in (HALF, weights) if gradients_first else (weights, HALF):
        sparsify_(model, spec)
    train(model, shape, steps=5)
    figures = tracking(model)
    assert list(figures) == [
        name for name, module in model.named_children() if hasattr(module, "weight") and name != "3"
    ]
    assert all(figure.step == 5 for figure in figures.values())
    names = [name for name in model.state_dict() if "gradient_sparsifier" in name]
    assert len(names) == 3 * len(figures)
    densify_(model)
    assert not any(isinstance(module, GradientSparsifier) for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    assert all(
        type(module) in (nn.Linear, nn.Conv2d)
        for module in model
        if hasattr(module, "weight") and module.weight.dim() > 1
    )


@pytest.mark.parametrize("method", RULES)
@each_model
def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(make_model, shape, method, tmp_path):
    def sparse_model() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = make_model()
        sparsify_(model, acf.GradientSparsity(0.5, method=method))
        return model, torch.optim.Adam(model.parameters(), lr=0.01)

    whole, optimizer = sparse_model()
    train(whole, shape, steps=3, optimizer=optimizer)
    torch.save({"model": whole.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "step3.pt")
    train(whole, shape, steps=4, optimizer=optimizer)
    resumed, optimizer = sparse_model()
    state = torch.load(tmp_path / "step3.pt", weights_only=True)
    resumed.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train(resumed, shape, steps=4, optimizer=optimizer)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert tracking(resumed) == tracking(whole)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own doing
@pytest.mark.parametrize("backend", ["aot_eager"])
@pytest.mark.parametrize("method", ["dts", "random"])
@each_model
def test_a_compiled_model_is_one_graph_that_trains_like_the_eager_one(make_model, shape, method, backend):
    torch._dynamo.reset()
    eager = make_model()
    sparsify_(eager, acf.GradientSparsity(0.5, method=method))
    model = copy.deepcopy(eager)
    counter = CompileCounter()
    compiled = torch.compile(model, fullgraph=True, backend=counter if backend == "eager" else backend)
    train(compiled, shape, steps=4)
    train(eager, shape, steps=4)
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value)
    assert counter.frame_count == (1 if backend == "eager" else 0)
    torch._dynamo.reset()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_has_thresholds_of_its_own(duplicate):
    model = mlp()
    sparsify_(model, HALF)
    train(model, (16, 8), steps=2)
    twin = duplicate(model)
    assert tracking(twin) == tracking(model)
    train(twin, (16, 8), steps=1)
    assert tracking(twin)["2"].step == 3
    assert tracking(model)["2"].step == 2


def test_thresholds_stay_in_float32_when_the_model_changes_precision():
    model = mlp()
    sparsify_(model, HALF)
    model[0].gradient_sparsifier.threshold.fill_(1e-9)
    model.half()
    assert model[0].weight.dtype is torch.float16
    assert tracking(model)["0"].threshold == pytest.approx(1e-9)


def test_a_layer_that_runs_twice_makes_two_steps():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.tanh(self.layer(x)))

    model = Twice()
    sparsify_(model, HALF)
    model(torch.randn(3, 8)).sum().backward()
    assert tracking(model)["layer"].step == 2


def test_the_summary_names_every_layer_and_those_left_out():
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 8))
    summary = sparsify_(model, HALF, filter_fn=lambda module, name: name != "1")
    assert [layer.name for layer in summary.sparse] == ["0.linear1", "0.linear2"]
    assert dict(summary.left_dense) == {
        "0.self_attn.out_proj": "attention reads its weight and never calls it",
        "1": "filter_fn leaves it out",
    }
    assert str(summary).startswith("0.linear1: output gradient to 50% zeros by dts\n")
    assert summary.sparsity == 0.0


def test_a_second_gradient_sparsity_is_refused_and_densify_makes_room():
    model = mlp()
    sparsify_(model, HALF)
    with pytest.raises(
        SparsityError, match=r"'0' is left out because its gradient is sparsified already.*densify_ first"
    ):
        sparsify_(model, HALF)
    parameters = dict(model.named_parameters())
    densify_(model)
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())
    sparsify_(model, HALF)


def test_a_layer_with_hooks_of_the_user_still_stays_dense():
    model = mlp()
    sparsify_(model, HALF)
    model[2].register_forward_hook(lambda module, args, output: None)
    assert dict(sparsify_(model, NMSparsity(2, 8)).left_dense) == {
        "2": "it has hooks, which its sparse successor would lose"
    }


@pytest.mark.parametrize("weights", [None, *WEIGHTS.values()], ids=["dense", *WEIGHTS])
@each_model
def test_a_capture_records_the_sparse_gradient_that_the_layer_computes_with(make_model, shape, weights):
    model = make_model()
    sparsify_(model, acf.GradientSparsity(0.75, method="top-k"))
    if weights is not None:
        sparsify_(model, weights)
    with acf.capture(model) as trace:
        model(torch.randn(shape)).square().mean().backward()
    gradients = {name: bits for name, bits in trace.tensors.items() if name.endswith("output_grad")}
    assert len(gradients) == 3
    assert all(bits.density <= 0.27 for bits in gradients.values())


def test_block_moves_go_on_with_sparse_gradients():
    model = mlp()
    sparsify_(model, BlockSparsity(0.5, block=8))
    sparsify_(model, HALF)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    topology = acf.attach(model, optimizer, acf.BlockDST(total_steps=8, every=2))
    train(model, (16, 8), steps=4, optimizer=optimizer)
    assert {change.step for change in topology.changes} == {2, 4}
