"""Layouts, masks and indices that would give another matrix than was meant are refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from acf.errors import AcfError
from acf.sparse import BlockLayout, BlockTopology

LAYOUT = BlockLayout(16, 16, 8, 8)
PLACE = torch.tensor([0, 1])

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a mask of more blocks": (
        lambda: _masked(torch.ones(3, 3) > 0),
        r"bool \[3, 3\] says nothing of 2 x 2 blocks; pass",
    ),
    "a mask in one row": (lambda: _masked(torch.ones(4) > 0), r"bool \[4\] says nothing of 2 x 2 blocks"),
    "a mask of shares": (lambda: _masked(torch.full((2, 2), 0.5)), r"float32 \[2, 2\] says nothing of"),
    "a mask of nan": (lambda: _masked(torch.full((2, 2), torch.nan)), "pass a bool for each of them"),
    "no mask": (lambda: _masked(None), "mask is None, of type NoneType; pass a bool tensor"),
    "fractions of rows": (lambda: BlockTopology.build(LAYOUT, PLACE / 2, PLACE), "block_rows is float32; pass one"),
    "truths as columns": (
        lambda: BlockTopology.build(LAYOUT, PLACE, PLACE > 0),
        "block_cols is bool; pass one integer",
    ),
    "a matrix of another shape": (lambda: LAYOUT.blocks(torch.ones(8, 32)), r"\[8, 32\] is not the 16 x 16 of this"),
    "a matrix to pack of another shape": (
        lambda: LAYOUT.pack(torch.ones(8, 32), PLACE, PLACE),
        "pass one that is, or build the layout",
    ),
    "a fraction of a size": (lambda: BlockLayout(16.0, 16, 8, 8), "rows is 16.0, of type float; pass an integer"),  # type: ignore[arg-type]
    "a text as a block": (lambda: BlockLayout(16, 16, "8", 8), "block_height is '8', of type str; pass"),  # type: ignore[arg-type]
    "no matrix in a stack": (lambda: BlockLayout(16, 16, 8, 8, stacked=0), "stacked is 0; pass how many matrices"),
}


def _masked(mask: Any) -> BlockTopology:
    return BlockTopology.from_mask(LAYOUT, mask)


@pytest.mark.parametrize("name", REFUSED)
def test_what_means_another_matrix_is_refused_in_one_line(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(AcfError, match=message) as error:
        call()
    assert len(str(error.value).splitlines()) == 1
