"""Weights pruned to N:M on the GPU."""

import pytest
import torch

from acf.ops.semi_structured.product import reference_prune
from acf.ops.triton import prune


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("groups", ["inputs", "outputs", "tiles"])
def test_a_pruned_weight_keeps_what_the_torch_masks_keep_and_breaks_ties_alike(groups: str, left_out: bool) -> None:
    for weight in (torch.randn(36, 68), torch.randint(-2, 3, (36, 68)).bfloat16()):
        arguments = (weight, groups, left_out, not left_out, weight.dtype)
        assert torch.equal(prune.prune(*arguments), reference_prune(*arguments))
