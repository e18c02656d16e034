"""Vector work of a model: what is recorded, where, and on how many values."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import acf
from acf.errors import TraceError
from acf.trace.vector_op import VectorOp


class Residual(nn.Module):
    """A convolution with batch normalisation and a residual, then a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = F.relu(self.norm(self.conv(x)) + x)
        return self.fc(x.mean(dim=(2, 3)))


def recorded(optimizer: str = "adam") -> acf.Trace:
    torch.manual_seed(0)
    model, x = Residual(), torch.randn(2, 3, 4, 4)
    with acf.capture(model, optimizer=optimizer) as trace:
        F.cross_entropy(model(x), torch.tensor([0, 1])).backward()
    return trace


def test_vector_work_stands_between_the_products_it_belongs_to() -> None:
    work = [(op.name, op.kind, op.phase, op.after) for op in recorded().vector_ops]
    assert work == [
        ("norm", "batch_norm", "forward", 2),
        ("Residual", "add", "forward", 2),
        ("Residual", "relu", "forward", 2),
        ("loss", "cross_entropy", "forward", 3),
        ("loss", "cross_entropy", "backward", 3),
        ("fc", "adam", "update", 4),
        ("Residual", "relu", "backward", 5),
        ("Residual", "add", "backward", 5),
        ("norm", "batch_norm", "backward", 5),
        ("conv", "adam", "update", 6),
        ("stem", "adam", "update", 8),
    ]


def test_it_counts_the_values_and_the_kept_weights() -> None:
    elements = {(op.name, op.kind, op.phase): op.elements for op in recorded("sgd").vector_ops}
    assert elements["norm", "batch_norm", "forward"] == 2 * 8 * 4 * 4
    assert elements["loss", "cross_entropy", "backward"] == 2 * 4
    assert elements["conv", "sgd", "update"] == 8 * 8 * 9
    model = nn.Sequential(nn.Linear(64, 64))
    acf.sparsify_(model, acf.BlockSparsity(0.75, block=16))
    with acf.capture(model) as trace:
        model(torch.randn(4, 64)).sum().backward()
    assert [op.elements for op in trace.vector_ops] == [64 * 64 // 4]


@pytest.mark.parametrize(
    ("pool", "windows"),
    [
        (nn.MaxPool2d(3, 2, 1), 2.25),
        (nn.MaxPool2d(2), 1.0),
        (nn.AvgPool2d((3, 2), stride=(1, 2)), 3.0),
        (nn.AdaptiveAvgPool2d(1), 1.0),
    ],
)
def test_a_pooling_tells_in_how_many_windows_a_value_is(pool: nn.Module, windows: float, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), pool)
    with acf.capture(model) as trace:
        model(torch.randn(2, 3, 8, 8)).sum().backward()
    trace.save(tmp_path / "step.safetensors")
    pools = [op for op in acf.Trace.load(tmp_path / "step.safetensors").vector_ops if op.kind == "pool"]
    assert [(op.phase, op.windows) for op in pools] == [("forward", windows), ("backward", windows)]


def test_attention_has_a_softmax_between_its_products() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(self.query(x), x, x)

    head = Head()
    with acf.capture(head) as trace:
        head(torch.randn(2, 4, 8)).sum().backward()
    work = [(op.kind, op.phase, op.elements, op.after) for op in trace.vector_ops]
    assert work[0] == ("softmax", "forward", 2 * 4 * 4, 2)
    assert ("softmax", "backward", 2 * 4 * 4) in [each[:3] for each in work]


def test_a_file_keeps_vector_work_and_one_without_it_is_still_read(tmp_path: Path) -> None:
    trace = recorded()
    trace.save(tmp_path / "step.safetensors")
    assert acf.Trace.load(tmp_path / "step.safetensors").vector_ops == trace.vector_ops
    trace.without_vector_work().save(tmp_path / "old.safetensors")
    assert acf.Trace.load(tmp_path / "old.safetensors").vector_ops == []


def test_unknown_work_is_refused_by_name() -> None:
    with (
        pytest.raises(TraceError, match="optimizer 'lion' is not adam or sgd"),
        acf.capture(Residual(), optimizer="lion"),
    ):
        pass
    with pytest.raises(TraceError, match="no vector work 'relu' in phase 'update'"):
        VectorOp("fc", "relu", "update", 1, 0)
    with pytest.raises(TraceError, match="comes after 3 products, the trace has 0"):
        acf.Trace([], {}, vector_ops=[VectorOp("fc", "relu", "forward", 1, 3)])
    with pytest.raises(TraceError, match=r"a value in 0\.5 windows of a pooling, which must be at least 1"):
        VectorOp("fc", "pool", "forward", 1, 0, windows=0.5)
