"""The schedule of the warp-specialised products."""

import pytest
import torch

from acf.ops.triton import warp_specialised_kernels


@pytest.mark.parametrize("groups", [1, 5, 16])
def test_a_schedule_starts_at_zero_and_has_large_groups_first(groups: int) -> None:
    counts = torch.randint(0, 4, (groups,))
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
    schedule = torch.full((groups + 1,), -1, dtype=torch.int32)
    warp_specialised_kernels.schedule_kernel[(1,)](offsets, schedule, groups, span=16)
    order = schedule[1:].long()
    assert schedule[0] == 0
    assert sorted(order.tolist()) == list(range(groups))
    assert bool((counts[order].diff() <= 0).all())
