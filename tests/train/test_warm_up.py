"""Warming up compiles, tunes and captures; a run after it is the run that would have been without it."""

import pytest
import torch
from torch import Tensor, nn

import acf
from acf.masks import SET, BlockDST, TopologyPolicy
from acf.train import TopologyController


def make(policy: TopologyPolicy) -> tuple[nn.Sequential, torch.optim.Optimizer, TopologyController]:
    """A model with batch statistics and dropout, its optimizer and its controller."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 16))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9, dampening=0.5)
    return model, optimizer, acf.attach(model, optimizer, policy)


def batch(seed: int) -> Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))


POLICIES = {
    "Algorithm 1": BlockDST(total_steps=100, every=2),
    "scores of two steps": BlockDST(total_steps=100, every=3, score_steps=2),
    "input-aware": BlockDST(total_steps=100, every=2, score="input_aware"),
    "SET": SET(total_steps=100, every=2),
}


@pytest.mark.parametrize("graphed", [False, True])
@pytest.mark.parametrize("name", POLICIES)
def test_a_run_after_a_warm_up_is_the_run_without_one(name: str, graphed: bool) -> None:
    results = []
    for warmed in (False, True):
        model, optimizer, topology = make(POLICIES[name])

        def loss_fn(x: Tensor, model: nn.Module = model) -> Tensor:
            return model(x).square().mean()

        step = acf.GraphedStep(loss_fn, optimizer, topology)
        if warmed:
            acf.warm_up(model, step if graphed else loss_fn, batch(99), topology=topology)
            assert topology.step == 0
            assert not optimizer.state
        for index in range(7):
            if graphed:
                step(batch(index))
            else:
                optimizer.zero_grad()
                loss_fn(batch(index)).backward()
                optimizer.step()
        results.append((model.state_dict(), optimizer.state_dict(), topology.changes, torch.get_rng_state()))
    plain, warm = results
    for key, value in plain[0].items():
        assert torch.equal(value, warm[0][key]), key
    for index, entries in plain[1]["state"].items():
        assert torch.equal(entries["momentum_buffer"], warm[1]["state"][index]["momentum_buffer"])
    assert plain[2] == warm[2]
    assert len(plain[2]) > 0
    assert torch.equal(plain[3], warm[3])


def test_gradients_and_the_state_of_a_resumed_run_survive_a_warm_up() -> None:
    model, optimizer, topology = make(BlockDST(total_steps=100, every=2))

    def loss_fn(x: Tensor) -> Tensor:
        return model(x).square().mean()

    loss_fn(batch(0)).backward()
    optimizer.step()
    gradients = [parameter.grad for parameter in model.parameters()]
    values = [gradient.clone() for gradient in gradients]
    momenta = {key: entries["momentum_buffer"].clone() for key, entries in optimizer.state.items()}
    acf.GraphedStep(loss_fn, optimizer, topology).warm_up(model, batch(99))
    assert topology.step == 1
    for parameter, gradient, value in zip(model.parameters(), gradients, values, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, value)
    for key, momentum in momenta.items():
        assert torch.equal(optimizer.state[key]["momentum_buffer"], momentum)


def test_a_warm_up_between_steps_of_a_graphed_step_is_refused() -> None:
    model, optimizer, topology = make(BlockDST(total_steps=100, every=2))
    step = acf.GraphedStep(lambda x: model(x).square().mean(), optimizer, topology)
    step(batch(0))
    with pytest.raises(acf.AcfError, match="call it before the first one"):
        acf.warm_up(model, step, batch(1))


@pytest.mark.parametrize("graphed", [False, True])
def test_a_warm_up_that_a_controller_would_take_for_training_is_refused(graphed: bool) -> None:
    model, optimizer, topology = make(BlockDST(total_steps=100, every=2))

    def loss_fn(x: Tensor) -> Tensor:
        return model(x).square().mean()

    with pytest.raises(acf.AcfError, match=r"0 is attached to a controller.*as topology"):
        acf.warm_up(model, acf.GraphedStep(loss_fn, optimizer) if graphed else loss_fn, batch(0))
    topology.detach()
    acf.warm_up(model, loss_fn, batch(0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_both_graphs_are_captured_before_training_and_train_like_eager_steps() -> None:
    results = []
    for warmed in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
        acf.sparsify_(model, acf.BlockSparsity(0.75, block=32))
        model.cuda()
        rate = torch.tensor(0.05, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, dampening=0.5, fused=True)
        topology = acf.attach(model, optimizer, BlockDST(total_steps=60, every=5))

        def loss_fn(x: Tensor, model: nn.Module = model) -> Tensor:
            return model(x).square().mean()

        step = acf.GraphedStep(loss_fn, optimizer, topology)
        if warmed:
            acf.warm_up(model, step, torch.randn(64, 256, device="cuda"))
            assert step._plain is not None
            assert step._moving is not None
        for seed in range(20):
            x = torch.randn(64, 256, generator=torch.Generator().manual_seed(seed)).cuda()
            step(x) if warmed else step._run_eagerly((x,))
        results.append((model.state_dict(), [(change.step, change.layer) for change in topology.changes]))
    assert results[0][1] == results[1][1]
    for name, value in results[0][0].items():
        assert torch.allclose(value.float(), results[1][0][name].float(), atol=1e-4), name


def test_every_scoring_pass_has_probes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient left on a probe would be overwritten by the next replay, which reduce-overhead refuses."""
    monkeypatch.setattr("acf.train.controller.captured_elsewhere", lambda: True)
    model, _, topology = make(POLICIES["Algorithm 1"])
    left = []

    def loss_fn(x: Tensor) -> Tensor:
        probe = model[0].identity.probe
        left.append(None if probe is None else probe.grad)
        compiled = torch.compile(model, backend="aot_eager")
        return compiled(x).square().mean()

    acf.warm_up(model, loss_fn, batch(0), topology=topology)
    assert len(left) == 6
    assert left == [None] * 6
