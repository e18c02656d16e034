"""What the pass over both layers of an MLP leaves to separate products, or refuses, so that it reads its own memory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from acf.errors import TopologyError
from acf.ops.whole_mlp import block_mlp_backward, block_mlp_forward
from tests.ops.cpu.layers import assert_close, needs_compiler
from tests.ops.cpu.test_both_layers import expected, sample

pytestmark = [needs_compiler, pytest.mark.usefixtures("native_at_any_density")]

OTHER_SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "of another dtype": lambda hidden: hidden.double(),
    "that are too few": lambda hidden: hidden[:8],
    "that do not lie together": lambda hidden: torch.stack([hidden, hidden], 1)[:, 0],
    "in another shape": lambda hidden: hidden.view(1, -1),
}


@pytest.mark.parametrize("how", OTHER_SUMS)
def test_sums_that_no_forward_pass_kept_are_made_again(how: str) -> None:
    x, output_grad, layers = sample(16, (2, 40))
    _, hidden = block_mlp_forward(x, *layers)
    grads = block_mlp_backward(output_grad, x, OTHER_SUMS[how](hidden), *layers)
    for result, wanted in zip(grads, expected(x, output_grad, layers)[1:], strict=True):
        assert_close(result, wanted, torch.float32)


@pytest.mark.parametrize("change", [lambda grad: grad[:, :8], lambda grad: grad[..., :16], lambda grad: grad.double()])
def test_a_gradient_that_is_not_of_the_output_is_refused_as_torch_does(change: Callable[[Tensor], Tensor]) -> None:
    x, output_grad, layers = sample(16, (2, 40))
    _, hidden = block_mlp_forward(x, *layers)
    with pytest.raises(RuntimeError, match=r"cannot be multiplied|same dtype|must match"):
        block_mlp_backward(change(output_grad), x, hidden, *layers)


@pytest.mark.parametrize("place", [1, 3])
def test_a_bias_of_another_length_is_refused_as_torch_does(place: int) -> None:
    x, _, layers = sample(16, (2, 40))
    layers[place] = layers[place][:3]
    with pytest.raises(RuntimeError, match="must match the size of tensor"):
        block_mlp_forward(x, *layers)


@pytest.mark.parametrize("width", [16, 96])
def test_an_input_of_another_width_is_refused_as_torch_does(width: int) -> None:
    _, _, layers = sample(16, (2, 40))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        block_mlp_forward(torch.ones(2, 40, width), *layers)


@pytest.mark.parametrize("name", ["scale", "", "nope"])
def test_an_epilogue_that_is_no_activation_is_not_run(name: str) -> None:
    x, _, layers = sample(16, (2, 40))
    layers[4] = name
    with pytest.raises(KeyError):
        block_mlp_forward(x, *layers)


BROKEN: dict[str, Callable[[Tensor], Tensor]] = {
    "of 64-bit integers": lambda each: each.long(),
    "with too few entries": lambda each: each[:1],
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize(("layer", "array"), [(5, "block_cols"), (5, "row_slots"), (6, "block_rows"), (6, "col_slots")])
def test_indices_that_native_code_would_misread_are_refused(layer: int, array: str, how: str) -> None:
    x, output_grad, layers = sample(16, (2, 40))
    _, hidden = block_mlp_forward(x, *layers)
    layers[layer] = _broken(layers[layer], array, BROKEN[how])
    refusal = r"rebuild it with BlockTopology.build|does not fit a topology"
    with pytest.raises((TopologyError, RuntimeError), match=refusal):
        block_mlp_forward(x, *layers)
    with pytest.raises((TopologyError, RuntimeError), match=refusal):
        block_mlp_backward(output_grad, x, hidden, *layers)


def _broken(topology: list[Tensor], array: str, change: Callable[[Tensor], Tensor]) -> list[Any]:
    names = ("block_rows", "block_cols", "row_offsets", "row_slots", "col_offsets", "col_slots")
    return [change(each) if name == array else each for name, each in zip(names, topology, strict=True)]
