"""N:M masks of what is no weight."""

import pytest
import torch

from acf.errors import ArgumentError, SparsityError
from acf.sparse.nm import nm_mask


def test_what_is_no_tensor_is_refused_by_its_type() -> None:
    with pytest.raises(ArgumentError, match=r"the weight is 'text', of type str; pass a torch\.Tensor"):
        nm_mask("text", n=2, m=4, dim=0)  # type: ignore[arg-type]


def test_a_weight_without_dimensions_has_no_groups() -> None:
    with pytest.raises(SparsityError, match="a weight without dimensions has no groups"):
        nm_mask(torch.tensor(1.0), n=2, m=4, dim=0)
