"""A compiled model trains with moving blocks as the eager one does."""

import gc

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from acf.masks import BlockDST
from acf.nn import BlockSparsity, sparsify_
from acf.train import TopologyChange, attach
from acf.train.observers import LayerListener

pytestmark = pytest.mark.usefixtures("few_collected_objects")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def train(**compile_settings) -> tuple[dict[str, torch.Tensor], list[TopologyChange]]:
    """Twelve steps of which every third moves blocks; compiled if there are settings for it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    controller = attach(model, optimizer, BlockDST(total_steps=100, every=3, schedule="constant"))
    forward = torch.compile(model, **compile_settings) if compile_settings else model
    for _ in range(12):
        optimizer.zero_grad()
        forward(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    return model.state_dict(), controller.changes


def test_a_model_compiled_once_ends_with_the_weights_and_blocks_of_the_eager_one():
    expected, expected_changes = train()
    counter = CompileCounterWithBackend("aot_eager")
    state, changes = train(backend=counter, fullgraph=True)
    assert counter.frame_count == 1
    assert changes == expected_changes
    assert {change.moved_blocks for change in changes} == {2}
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value)


def test_a_graph_that_calls_no_observer_scores_blocks_by_its_own_gradients(monkeypatch):
    """As under CUDA graphs, which replay no Python: observers are never called, and a second graph has probes."""
    expected, expected_changes = train()
    monkeypatch.setattr("acf.ops.observe.notify", lambda *_: None)
    monkeypatch.setattr("acf.train.controller.captured_elsewhere", lambda: True)
    counter = CompileCounterWithBackend("aot_eager")
    state, changes = train(backend=counter, fullgraph=True)
    assert counter.frame_count == 2  # steps that score, and all others
    assert changes == expected_changes
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value)


def test_scores_count_once_where_a_pass_calls_the_observers_and_has_probes(monkeypatch):
    expected, expected_changes = train()
    monkeypatch.setattr("acf.train.controller.captured_elsewhere", lambda: True)
    state, changes = train(backend="aot_eager", fullgraph=True)
    assert changes == expected_changes
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value)


def test_evaluation_before_a_scoring_step_is_compiled_once(monkeypatch):
    monkeypatch.setattr("acf.train.controller.captured_elsewhere", lambda: True)
    model = nn.Sequential(nn.Linear(16, 16))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    attach(model, optimizer, BlockDST(total_steps=100, every=2))
    counter = CompileCounterWithBackend("eager")
    forward = torch.compile(model, backend=counter)
    for _ in range(4):
        with torch.no_grad():
            forward(torch.randn(8, 16))
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
    assert counter.frame_count == 1


@pytest.mark.parametrize("score", ["magnitude", "input_aware"])
def test_scoring_beside_a_probe_keeps_no_tensor_that_the_pass_allocated(monkeypatch, score):
    """A graph of reduce-overhead runs first in its own memory pool, where nothing but its outputs may stay."""
    left_over = []
    add = LayerListener.add

    def counted_add(*args):
        before = _live_tensors()
        add(*args)
        left_over.extend(_live_tensors() - before)

    monkeypatch.setattr(LayerListener, "add", counted_add)
    monkeypatch.setattr("acf.train.controller.captured_elsewhere", lambda: True)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    controller = attach(model, optimizer, BlockDST(total_steps=9, every=1, score=score))
    for _ in range(2):
        model(torch.randn(8, 16)).square().sum().backward()
        optimizer.step()
    assert controller.changes
    assert not left_over


def _live_tensors() -> set[int]:
    gc.collect()
    return {each.data_ptr() for each in gc.get_objects() if type(each) is torch.Tensor}
