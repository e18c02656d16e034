"""Training steps as CUDA graphs; without a GPU every step runs eagerly, and controllers can be counted by hand."""

import pytest
import torch
from torch import Tensor, nn

import acf
from acf.train.graphed import GraphedStep


def sparse_model() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
    return model


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(16, 32, generator=generator), torch.randn(16, 32, generator=generator)) for _ in range(count)]


def test_on_a_cpu_a_graphed_step_trains_like_a_plain_loop() -> None:
    plain, graphed = sparse_model(), sparse_model()
    for model, wrapped in ((plain, False), (graphed, True)):
        optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9)
        topology = acf.attach(model, optimizer, acf.BlockDST(total_steps=8, every=2))

        def loss_fn(x: Tensor, y: Tensor, model: nn.Module = model) -> Tensor:
            return nn.functional.mse_loss(model(x), y)

        step = GraphedStep(loss_fn, optimizer, topology)
        for batch in batches(8):
            if wrapped:
                step(*batch)
            else:
                optimizer.zero_grad()
                loss_fn(*batch).backward()
                optimizer.step()
        assert topology.step == 8
    for name, value in plain.state_dict().items():
        assert torch.equal(value, graphed.state_dict()[name]), name


def test_several_optimizers_step_in_turn_and_count_as_one_step() -> None:
    model = sparse_model()
    weights = [p for p in model.parameters() if p.dim() == 3]
    biases = [p for p in model.parameters() if p.dim() == 1]
    optimizers = [torch.optim.AdamW(weights, lr=0.01), torch.optim.SGD(biases, lr=0.1)]
    topology = acf.attach(model, optimizers, acf.BlockDST(total_steps=8, every=2))
    step = GraphedStep(lambda x, y: nn.functional.mse_loss(model(x), y), optimizers, topology)
    before = [p.detach().clone() for p in model.parameters()]
    for batch in batches(2):
        step(*batch)
    assert topology.step == 2
    assert {change.step for change in topology.changes} == {2}
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_steps_that_score_or_move_are_named_ahead() -> None:
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    topology = acf.attach(model, optimizer, acf.BlockDST(total_steps=100, every=10, score_steps=2))
    eager = []
    for step in range(1, 21):
        if topology.scores_next:
            eager.append(step)
        topology.count_step() if not topology.scores_next else _train(model, optimizer)
    assert eager == [9, 10, 19, 20]


def _train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = batches(1)[0]
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def test_a_paused_controller_does_not_count() -> None:
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    topology = acf.attach(model, optimizer, acf.StaticTopology())
    with topology.paused():
        _train(model, optimizer)
    assert topology.step == 0
    _train(model, optimizer)
    assert topology.step == 1


def test_a_number_as_learning_rate_is_refused_before_the_capture() -> None:
    model = sparse_model()
    step = GraphedStep(lambda x: model(x).sum(), torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(acf.AcfError, match=r"lr=torch\.tensor"):
        step._capture((torch.randn(4, 32),), None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_replayed_steps_train_and_move_blocks_like_eager_ones() -> None:
    results = []
    for graphed in (False, True):
        model = sparse_model_of(256).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.05, device="cuda"), momentum=0.9, fused=True)
        topology = acf.attach(model, optimizer, acf.BlockDST(total_steps=60, every=5))

        def loss_fn(x: Tensor, y: Tensor, model: nn.Module = model) -> Tensor:
            return nn.functional.mse_loss(model(x), y)

        step = GraphedStep(loss_fn, optimizer, topology)
        generator = torch.Generator().manual_seed(0)
        for _ in range(40):
            x, y = (torch.randn(64, 256, generator=generator).cuda() for _ in range(2))
            step(x, y) if graphed else step._run_eagerly((x, y))
        assert step.eager_steps == (3 if graphed else 40)
        results.append((model.state_dict(), [(change.step, change.layer) for change in topology.changes]))
    (eager, eager_changes), (replayed, replayed_changes) = results
    assert eager_changes == replayed_changes
    assert len(eager_changes) == 2 * 8
    for name, value in eager.items():
        assert torch.allclose(value.float(), replayed[name].float(), atol=1e-4), name


def sparse_model_of(width: int) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
    acf.sparsify_(model, acf.BlockSparsity(0.75, block=32))
    return model
