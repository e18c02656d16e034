"""Training steps as CUDA graphs; without a GPU every step runs eagerly, and controllers can be counted by hand."""

import pytest
import torch
from torch import Tensor, nn

import acf
from acf.train.graphed import GraphedStep, _Capture, _take_over


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


def test_gradients_are_clipped_by_a_hook_of_the_optimizer() -> None:
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(1.0))

    def clip(*_: object) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

    optimizer.register_step_pre_hook(clip)
    step = GraphedStep(lambda x, y: nn.functional.mse_loss(model(x), y), optimizer)
    before = [p.detach().clone() for p in model.parameters()]
    step(*batches(1)[0])
    moved = torch.cat([(old - new.detach()).flatten() for old, new in zip(before, model.parameters(), strict=True)])
    assert float(moved.norm()) == pytest.approx(1e-3, rel=1e-2)


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


def test_a_capture_while_the_controller_is_suspended_leaves_it_suspended() -> None:
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    topology = acf.attach(model, optimizer, acf.BlockDST(total_steps=10, every=1))
    before = topology.state_dict()["layers"]
    with topology.suspended():
        with topology.scoring(), topology.paused():  # as a warm-up captures the step that moves
            pass
        _train(model, optimizer)  # the capture of a plain step follows, and must not score for the first move
    after = topology.state_dict()["layers"]
    assert topology.step == 0
    assert [each["growth_squares"] for each in before.values()] == [each["growth_squares"] for each in after.values()]


def test_a_number_as_learning_rate_is_refused_before_the_capture() -> None:
    model = sparse_model()
    step = GraphedStep(lambda x: model(x).sum(), torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(acf.AcfError, match=r"lr=torch\.tensor"):
        step._capture((torch.randn(4, 32),), None)


def test_an_optimizer_that_counts_on_the_host_is_refused_before_the_capture() -> None:
    model = sparse_model()
    step = GraphedStep(lambda x: model(x).sum(), torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1)))
    with pytest.raises(acf.AcfError, match=r"Adam counts its steps on the host.*capturable=True"):
        step._capture((torch.randn(4, 32),), None)


def test_a_batch_of_another_shape_is_refused_even_where_it_would_broadcast() -> None:
    capture = _Capture(None, (torch.zeros(4, 32),), torch.zeros(()), [], None)
    with pytest.raises(acf.AcfError, match=r"shape \[1, 32\].*captured with \[4, 32\]"):
        capture.replay((torch.ones(1, 32),))


def test_the_first_state_of_an_optimizer_moves_into_the_tensors_that_graphs_know() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    known = torch.full((3,), 7.0)
    state = {parameter: {"exp_avg": torch.arange(3.0), "max": None}}
    assert _take_over(state, {parameter: {"exp_avg": known, "max": None}})
    assert state[parameter]["exp_avg"] is known
    assert known.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("entries", [{}, {"exp_avg": torch.zeros(2)}, {"exp_avg": torch.zeros(3), "count": 1}])
def test_state_of_another_form_is_not_taken_over(entries: dict[str, object]) -> None:
    parameter = nn.Parameter(torch.zeros(3))
    own = torch.arange(3.0)
    state = {parameter: {"exp_avg": own, **({"count": 1} if "count" in entries else {})}}
    assert not _take_over(state, {parameter: entries})
    assert state[parameter]["exp_avg"] is own


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("disturbance", ["a dense start that shrinks", "another optimizer state"])
def test_graphs_follow_weights_and_state_that_come_to_lie_elsewhere(disturbance: str) -> None:
    results = []
    for graphed in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
        dense = disturbance == "a dense start that shrinks"
        acf.sparsify_(model, acf.BlockSparsity(0.75, block=32, init="dense" if dense else "sparse"))
        model.cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.05, device="cuda"), momentum=0.9, fused=True)
        policy = acf.GradualPruning(total_steps=20, every=6) if dense else acf.BlockDST(total_steps=20, every=6)
        topology = acf.attach(model, optimizer, policy)
        step = GraphedStep(lambda x, model=model: model(x).square().mean(), optimizer, topology)
        for seed in range(20):
            x = torch.randn(64, 256, generator=torch.Generator().manual_seed(seed)).cuda()
            step(x) if graphed else step._run_eagerly((x,))
            if seed == 9 and not dense:
                optimizer.load_state_dict(optimizer.state_dict())
        results.append(model.state_dict())
    for name, value in results[0].items():
        assert torch.allclose(value.float(), results[1][name].float(), atol=1e-4), name
