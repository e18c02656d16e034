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
        step._capture((torch.randn(4, 32),))
