"""Masks of N:M layers follow the weight, whoever writes to it, and are not generated twice for one weight."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from acf.masks import nm_mask
from acf.nn import NMLayer, NMSparsity, nm_layer, nm_masks, sparsify_

X = torch.linspace(-1.0, 1.0, 3 * 8).reshape(3, 8)


def sparse_model(method: str = "bdwp", seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    sparsify_(model, NMSparsity(2, 4, method=method))
    return model


def assert_masks_fit(model: nn.Module) -> None:
    """The masks that the next pass uses are those of the present weights."""
    for layer in model.modules():
        if isinstance(layer, NMLayer):
            masks = layer.masks()
            assert torch.equal(masks.forward, nm_mask(layer.weight, 2, 4, dim=1))
            assert torch.equal(masks.backward, nm_mask(layer.weight, 2, 4, dim=0))


class WritesToData(torch.optim.Optimizer):
    """Writes behind the back of the version counter, as many older optimizers do."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(torch.randn_like(parameter))


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=1.0, momentum=0.9),
        lambda parameters: torch.optim.Adam(parameters, lr=0.5),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.5, fused=True),
        lambda parameters: torch.optim.Adafactor(parameters, lr=0.5),
        lambda parameters: torch.optim.LBFGS(parameters, lr=1.0),
        WritesToData,
    ],
    ids=["SGD", "Adam", "fused AdamW", "Adafactor", "LBFGS", "writes to data"],
)
def test_masks_follow_every_optimizer(make_optimizer):
    model = sparse_model()
    optimizer = make_optimizer(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = model(X).square().sum() * 10
        loss.backward()
        return loss.detach()

    for _ in range(3):
        before = model[0].weight.detach().clone()
        optimizer.step(closure) if isinstance(optimizer, torch.optim.LBFGS) else (closure(), optimizer.step())
        assert not torch.equal(before, model[0].weight)
        assert_masks_fit(model)


@pytest.mark.parametrize("assign", [False, True], ids=["copied", "assigned"])
def test_masks_follow_a_loaded_checkpoint(assign):
    model, other = sparse_model(seed=1), sparse_model(seed=2)
    model.load_state_dict(other.state_dict(), assign=assign)
    assert_masks_fit(model)
    assert torch.equal(model(X), other(X))


def test_masks_follow_an_edit_by_hand():
    model = sparse_model()
    with torch.no_grad():
        model[0].weight.normal_()
    assert_masks_fit(model)


def test_a_write_to_data_outside_an_optimizer_needs_a_refresh_by_hand():
    model = sparse_model()
    model[0].weight.data.normal_()
    model[0].refresh_masks()
    assert_masks_fit(model)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_has_masks_of_its_own(duplicate):
    model = sparse_model()
    twin = duplicate(model)
    assert torch.equal(twin(X), model(X))
    with torch.no_grad():
        twin[0].weight.normal_()
    assert_masks_fit(twin)
    assert_masks_fit(model)
    assert not torch.equal(twin(X), model(X))


@pytest.mark.parametrize("convert", [nn.Module.double, nn.Module.bfloat16], ids=["double", "bfloat16"])
def test_masks_survive_a_change_of_precision(convert):
    model = convert(sparse_model())
    assert model[0].forward_mask.dtype is torch.bool
    assert model(X.to(model[0].weight.dtype)).dtype is model[0].weight.dtype


def test_borrowed_weights_use_their_own_masks_and_leave_none_behind():
    model = sparse_model(seed=1)
    borrowed = {name: value.detach() for name, value in sparse_model(seed=2).named_parameters()}
    expected = sparse_model(seed=2)(X)
    assert torch.equal(torch.func.functional_call(model, borrowed, X), expected)
    assert_masks_fit(model)


def test_masks_made_in_inference_mode_serve_the_next_training_step():
    model = sparse_model()
    with torch.no_grad():
        model[0].weight.normal_()
    with torch.inference_mode():
        model(X)
    model(X).sum().backward()
    assert_masks_fit(model)


def test_masks_are_generated_once_per_update_however_many_passes_follow(monkeypatch):
    calls = []

    def counted(*args):
        calls.append(args)
        return nm_mask(*args)

    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monkeypatch.setattr(nm_layer, "nm_mask", counted)
    for updates in range(1, 3):
        for _ in range(3):
            model(X).sum().backward()
        optimizer.step()
        with torch.no_grad():
            model(X)
        assert len(calls) == 4 * updates  # two layers, two masks


def test_nothing_is_kept_of_weights_that_a_cuda_graph_may_write_to(monkeypatch):
    model = sparse_model()
    model(X)
    with monkeypatch.context() as capture:
        capture.setattr(nm_masks, "_is_captured", lambda weight: True)
        model(X)
    model[0].weight.data.normal_()  # what a replay does, as far as torch can tell
    assert_masks_fit(model)
    other = sparse_model()[0]
    assert other.masks().forward is other.masks().forward


def test_nothing_is_kept_of_weights_whose_optimizer_step_is_captured(monkeypatch):
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(X).sum().backward()
    with monkeypatch.context() as capture:  # of a compiled model, whose layers run no Python then
        capture.setattr(nm_masks, "_is_captured", lambda weight: True)
        optimizer.step()
    for _ in range(2):
        model[0].weight.data.normal_()  # what a replay does, as far as torch can tell
        assert_masks_fit(model)


def test_a_checkpoint_is_that_of_the_dense_model():
    dense = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    model = sparse_model()
    assert model.state_dict().keys() == dense.state_dict().keys()
    model.load_state_dict(dense.state_dict())
    assert_masks_fit(model)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own doing
@pytest.mark.parametrize("method", ["bdwp", "sr-ste", "sdgp"])
@pytest.mark.parametrize("backend", ["aot_eager"])
def test_a_compiled_model_is_one_graph_whose_gradients_follow_the_weights(method, backend):
    torch._dynamo.reset()
    model = sparse_model(method)
    twin = copy.deepcopy(model)
    counter = CompileCounter()
    compiled = torch.compile(model, fullgraph=True, backend=counter if backend == "eager" else backend)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.5) for each in (model, twin)]
    for _ in range(3):
        for module, optimizer in zip((compiled, twin), optimizers, strict=True):
            optimizer.zero_grad()
            module(X).square().sum().backward()
            optimizer.step()
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs)
    assert counter.frame_count == (1 if backend == "eager" else 0)
    torch._dynamo.reset()


def test_recomputed_activations_give_the_same_gradients():
    model = sparse_model()
    expected = torch.autograd.grad(model(X).square().sum(), list(model.parameters()))
    y = torch.utils.checkpoint.checkpoint(model, X, use_reentrant=False)
    for found, wanted in zip(torch.autograd.grad(y.square().sum(), list(model.parameters())), expected, strict=True):
        assert torch.equal(found, wanted)
