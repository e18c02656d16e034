"""Batch norms that alone read a block-sparse convolution are found, linked to it, and fused in compiled graphs."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd

import acf
from acf.errors import SparsityError
from acf.nn import BlockSparseConv2d, BlockSparsity, FusedBatchNorm2d, fuse_batch_norms_, sparsify_
from acf.zoo.networks import NETWORKS

HALF = BlockSparsity(0.5, block=16)


class Net(nn.Module):
    """Convolutions and norms by name, and a forward pass by subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        sparsify_(self, HALF)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class ReadTwice(Net):
    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(x)
        return self.bn1(y) + self.bn2(self.conv2(y))


class CalledTwice(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.bn1(self.conv1(self.bn1(self.conv1(x)))) + self.bn2(self.conv2(x))


class DisturbedInTraining(Net):
    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(x)
        if self.training:
            y = y + 1
        return self.bn2(self.conv2(self.bn1(y)))


class Branching(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("network", "width", "norms"), [("resnet18-cifar", 32, 19), ("wrn28-10-cifar", 2, 11)], ids=["resnet", "wrn"]
)
def test_the_norms_of_residual_networks_are_found(network: str, width: int, norms: int) -> None:
    model = NETWORKS[network].build(3, 10, width)
    sparsify_(model, BlockSparsity(0.5, block=32))
    names, parameters = list(model.state_dict()), list(model.parameters())
    fused = acf.fuse_batch_norms_(model)
    assert len(fused) == norms
    assert fuse_batch_norms_(model) == fused
    assert list(model.state_dict()) == names
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))


def test_only_a_norm_that_alone_reads_a_sparse_convolution_is_fused() -> None:
    assert fuse_batch_norms_(Net()) == ("bn1", "bn2")
    assert fuse_batch_norms_(ReadTwice()) == ("bn2",)
    assert fuse_batch_norms_(CalledTwice()) == ("bn2",)
    assert fuse_batch_norms_(nn.Sequential(nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16))) == ()
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(Net())
    assert fuse_batch_norms_(synchronised) == ()


def test_the_forward_pass_of_training_decides() -> None:
    model = DisturbedInTraining().eval()
    assert fuse_batch_norms_(model) == ("bn2",)
    assert not any(module.training for module in model.modules())


def test_a_model_that_cannot_be_traced_takes_pairs_by_name() -> None:
    model = Branching()
    with pytest.raises(SparsityError, match=r"cannot trace Branching .* pairs=\[\(\"conv1\", \"bn1\"\)"):
        fuse_batch_norms_(model)
    assert fuse_batch_norms_(model, pairs=[("conv1", "bn1")]) == ("bn1",)
    assert (model.conv1.feeds_batch_norm, model.conv2.feeds_batch_norm) == (True, False)
    with pytest.raises(SparsityError, match=r"'bn3' is no layer of the model, not an nn\.BatchNorm2d"):
        fuse_batch_norms_(model, pairs=[("conv1", "bn3")])
    with pytest.raises(SparsityError, match="'bn1' is a FusedBatchNorm2d, not a block-sparse Conv2d"):
        fuse_batch_norms_(model, pairs=[("bn1", "conv1")])


def test_a_fused_norm_is_one_call_of_a_symbolic_trace() -> None:
    model = Net()
    fuse_batch_norms_(model)
    called = [node.target for node in fx.symbolic_trace(model).graph.nodes if node.op == "call_module"]
    assert called == ["conv1", "bn1", "conv2", "bn2"]


@pytest.fixture
def statistics_when_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions give statistics in compiled graphs on any device."""
    monkeypatch.setattr(
        BlockSparseConv2d, "_gives_statistics", lambda self, x: self.feeds_batch_norm and torch.compiler.is_compiling()
    )


def compiled(model: nn.Module, graphs: list[set[str]]) -> Any:
    """``model`` compiled as one graph; ``graphs`` gets the operators of its forward and backward pass."""

    def record(module: fx.GraphModule, _: Any) -> Any:
        graphs.append({str(node.target) for node in module.graph.nodes if node.op == "call_function"})
        return module.forward

    torch.compiler.reset()
    return torch.compile(model, backend=aot_autograd(fw_compiler=record), fullgraph=True)


def train(call: Any, model: nn.Module, x: Tensor) -> list[Tensor]:
    outputs = []
    for _ in range(2):
        y = call(x)
        (y**3).sum().backward()
        outputs.append(y.detach())
    return [*outputs, *(parameter.grad for parameter in model.parameters())]


@pytest.mark.usefixtures("statistics_when_compiled")
@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
def test_a_compiled_graph_reads_the_output_for_statistics_only_in_the_convolution() -> None:
    model, graphs = Net().double(), list[set[str]]()
    plain, x = copy.deepcopy(model), torch.randn(3, 16, 5, 5).double()
    fuse_batch_norms_(model)
    found, expected = train(compiled(model, graphs), model, x), train(plain, plain, x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(model.state_dict(), plain.state_dict())
    forward, backward = graphs
    assert "acf.block_conv2d_statistics.default" in forward
    assert not any("batch_norm" in name or "var_mean" in name for name in forward)
    assert "aten.native_batch_norm_backward.default" in backward
    assert type(model.bn1) is FusedBatchNorm2d


@pytest.mark.parametrize(("memory_format", "fused"), [(torch.channels_last, True), (torch.contiguous_format, False)])
@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
def test_on_a_cpu_compiled_graphs_are_fused_where_channels_are_innermost(memory_format: Any, fused: bool) -> None:
    model, graphs = Net().to(memory_format=memory_format), list[set[str]]()
    plain, x = copy.deepcopy(model).double(), torch.randn(3, 16, 5, 5).to(memory_format=memory_format)
    fuse_batch_norms_(model)
    found, expected = train(compiled(model, graphs), model, x), train(plain, plain, x.double())
    for result, wanted in zip(found, expected, strict=True):
        assert torch.linalg.vector_norm(result - wanted) <= 1e-5 * torch.linalg.vector_norm(wanted)
    assert ("acf.block_conv2d_statistics.default" in graphs[0]) == fused


@pytest.mark.usefixtures("statistics_when_compiled")
@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
def test_a_compiled_graph_that_scores_blocks_is_fused_too() -> None:
    model, graphs = Net(), list[set[str]]()
    fuse_batch_norms_(model)
    model.conv1.identity.probe = probe = torch.zeros(1, 9, requires_grad=True)
    compiled(model, graphs)(torch.randn(3, 16, 5, 5)).sum().backward()
    assert probe.grad is not None
    assert not any("batch_norm" in name for name in graphs[0])


class ChangedInPlace(Net):
    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(x)
        y.mul_(2.0)
        return self.bn2(self.conv2(self.bn1(y)) + 1)


@pytest.mark.usefixtures("statistics_when_compiled")
@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
def test_pairs_that_are_none_cost_time_and_never_give_wrong_results() -> None:
    model, graphs = ChangedInPlace().double(), list[set[str]]()
    plain, x = copy.deepcopy(model), torch.randn(3, 16, 5, 5).double()
    fuse_batch_norms_(model, pairs=[("conv1", "bn1"), ("conv2", "bn2")])
    found, expected = train(compiled(model, graphs), model, x), train(plain, plain, x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(model.state_dict(), plain.state_dict())
