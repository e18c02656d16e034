"""Averages of weights while blocks move: every block is averaged with itself alone."""

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import acf
from acf.errors import SparsityError, TopologyError
from acf.nn import SlotAveragedModel, block_sparse_layers

DECAY = 0.7


class Run:
    """A model with a batch normalisation whose blocks move at every second step."""

    def __init__(self, init: str = "sparse") -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
        acf.sparsify_(self.model, acf.BlockSparsity(0.75, block=4, init=init))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        shrink = 0.5 if init == "dense" else 0.0
        policy = acf.BlockDST(total_steps=12, every=2, fraction=0.5, stop_at=1.0, shrink_until=shrink)
        self.controller = acf.attach(self.model, self.optimizer, policy)

    def step(self) -> None:
        x = torch.randn(8, 16)
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(x), x.flip(1)).backward()
        self.optimizer.step()


class DenseAverage:
    """The oracle: averages of dense matrices, in which a block that is new starts with its weight."""

    def __init__(self) -> None:
        self.matrix: Tensor | None = None
        self.mask: Tensor | None = None
        self.updates = 0

    def update(self, layer: nn.Module, exponential: bool) -> None:
        weight, mask = layer.forward_matrix(), layer.gradient_mask()
        if self.matrix is None or self.mask is None:
            self.matrix = weight
        else:
            share = 1 - DECAY if exponential else 1 / (self.updates + 1)
            averaged = self.matrix + share * (weight - self.matrix)
            self.matrix = torch.where(mask & self.mask, averaged, weight)
        self.mask = mask
        self.updates += 1


AVERAGES = {
    "acf.ema": lambda model: acf.ema(model, decay=DECAY),
    "AveragedModel": lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY)),
    "with buffers": lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY), use_buffers=True),
    "equal weights": AveragedModel,
    "by a function": lambda model: AveragedModel(model, avg_fn=lambda old, new, count: DECAY * old + (1 - DECAY) * new),
}


@pytest.mark.parametrize("init", ["sparse", "dense"])
@pytest.mark.parametrize("make", AVERAGES.values(), ids=AVERAGES.keys())
def test_every_block_is_averaged_with_itself_while_blocks_move_and_are_pruned(make, init):
    run = Run(init)
    average, oracles = make(run.model), {name: DenseAverage() for name in block_sparse_layers(run.model)}
    for _ in range(12):
        run.step()
        average.update_parameters(run.model)
        for name, oracle in oracles.items():
            oracle.update(run.model.get_submodule(name), exponential=make is not AveragedModel)
    assert sum(change.moved_blocks for change in run.controller.changes) > 10
    for name, layer in block_sparse_layers(average.module).items():
        assert all(map(torch.equal, layer.topology, run.model.get_submodule(name).topology)), name
        torch.testing.assert_close(layer.forward_matrix(), oracles[name].matrix)
        assert layer.weight.data_ptr() != run.model.get_submodule(name).weight.data_ptr()
        assert layer.block_rows.data_ptr() != run.model.get_submodule(name).block_rows.data_ptr()


def test_biases_are_averaged_and_running_statistics_are_the_models():
    run = Run()
    average, bias = acf.ema(run.model, decay=DECAY), None
    for _ in range(4):
        run.step()
        average.update_parameters(run.model)
        new = run.model[0].bias.detach().clone()
        bias = new if bias is None else DECAY * bias + (1 - DECAY) * new
    torch.testing.assert_close(average.module[0].bias, bias)
    assert torch.equal(average.module[1].running_mean, run.model[1].running_mean)
    assert int(average.n_averaged) == 4
    assert not any(parameter.requires_grad for parameter in average.module.parameters())


def test_an_average_is_saved_and_loaded_with_its_topology():
    run, other = Run(), Run()
    average = acf.ema(run.model, decay=DECAY)
    for _ in range(3):
        run.step()
        average.update_parameters(run.model)
    loaded = acf.ema(other.model, decay=DECAY)
    loaded.load_state_dict(average.state_dict())
    x = torch.randn(4, 16)
    assert torch.equal(loaded.eval()(x), average.eval()(x))


def test_an_average_of_a_compiled_model_is_that_of_the_model_inside():
    run = Run()
    average = acf.ema(torch.compile(run.model, backend="eager"), decay=DECAY)
    run.step()
    average.update_parameters(torch.compile(run.model, backend="eager"))
    assert torch.equal(average.module[0].weight, run.model[0].weight)


def test_a_dense_model_has_a_plain_average():
    assert type(AveragedModel(nn.Linear(4, 4))) is AveragedModel
    average, model = acf.ema(nn.Linear(4, 4)), nn.Linear(4, 4)
    average.update_parameters(model)
    assert torch.equal(average.module.weight, model.weight)


def test_another_kind_of_averaged_model_is_refused_for_a_sparse_model_and_may_be_derived():
    run = Run()
    with pytest.raises(TopologyError, match=r"Own averages slot by slot.*derive it from acf\.nn\.SlotAveragedModel"):
        type("Own", (AveragedModel,), {})(run.model)
    assert isinstance(type("Own", (SlotAveragedModel,), {})(run.model), AveragedModel)


def test_an_average_of_another_model_is_refused():
    run, dense = Run(), nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
    with pytest.raises(TopologyError, match="the average has 2 block-sparse layers and the model 0"):
        acf.ema(run.model).update_parameters(dense)


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_a_decay_outside_its_range_is_refused(decay):
    with pytest.raises(SparsityError, match="it is the share of the old average"):
        acf.ema(nn.Linear(4, 4), decay=decay)
