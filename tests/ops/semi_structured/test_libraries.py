"""Around the libraries: the format that CUTLASS reads, and tokens padded to what both take."""

import pytest
import torch
from torch.sparse._semi_structured_conversions import sparse_semi_structured_to_dense_cutlass

from acf.ops.semi_structured import libraries
from acf.ops.semi_structured.libraries import Library, cutlass_compress, cutlass_parts, multiply, packed_columns
from acf.sparse import nm_mask


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_weight_compressed_for_cutlass_holds_all_of_it_in_nine_sixteenths(dtype):
    weight = torch.randn(64, 128).to(dtype)
    pruned = torch.where(nm_mask(weight, 2, 4, dim=1), weight, 0.0)
    packed = cutlass_compress(pruned)
    assert packed.shape == (64, packed_columns(128))
    assert torch.equal(sparse_semi_structured_to_dense_cutlass(*cutlass_parts(packed)), pruned)


@pytest.mark.parametrize("tokens", [0, 1, 8, 13])
def test_tokens_are_padded_for_the_library_and_cut_again(tokens, monkeypatch):
    seen = []

    def checked(x, packed):
        assert x.is_contiguous()
        seen.append(x.shape[0])
        return x @ packed.T

    monkeypatch.setitem(libraries.LIBRARIES, "checked", Library(torch.clone, checked))
    x, weight = torch.randn(16, 2 * tokens).T[::2], torch.randn(24, 16)
    y = multiply("checked", x, weight)
    torch.testing.assert_close(y, x @ weight.T)
    assert y.is_contiguous()
    assert seen == [size for size in (-(-tokens // 8) * 8,) if size]
