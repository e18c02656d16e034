"""`torch.fx.symbolic_trace` keeps sparse layers as single calls."""

import pytest
import torch
from torch import nn

import acf

SPECS = {
    "blocks": acf.BlockSparsity(0.5, block=4),
    "n:m": acf.NMSparsity(n=2, m=4),
    "gradients": acf.GradientSparsity(0.5),
}


@pytest.mark.parametrize("container", [nn.Sequential, acf.FusedSequential])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_traced_model_computes_and_trains_the_same(spec, container):
    torch.manual_seed(0)
    model = container(
        nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 1), nn.Flatten(), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 8)
    )
    acf.sparsify_(model, spec)
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == list("012345")
    x = torch.randn(2, 8, 4, 4)
    torch.testing.assert_close(traced(x), model(x))
    traced(x).sum().backward()
    assert model[3].weight.grad is not None


def test_a_call_by_keyword_is_traced_too():
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x=x)

    model = Keyword()
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4))
    x = torch.randn(2, 8)
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(x), model(x))
