"""The block-sparse 3-D convolution against torch's."""

import pytest
import torch
from torch import nn

from acf.errors import SparsityError
from acf.nn import BlockSparseConv3d, BlockSparsity, sparsify_

SETTINGS = {
    "plain": {"kernel_size": 3},
    "one depth tap": {"kernel_size": (1, 3, 2)},
    "strided and padded": {"kernel_size": (3, 2, 3), "stride": (2, 1, 2), "padding": (1, 0, 2)},
    "dilated": {"kernel_size": (2, 3, 1), "dilation": (3, 2, 1), "padding": (2, 1, 0)},
    "same": {"kernel_size": (2, 3, 3), "padding": "same", "dilation": (3, 1, 1)},
    "replicate": {"kernel_size": 3, "padding": (1, 0, 2), "padding_mode": "replicate", "stride": (1, 2, 1)},
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_outputs_gradients_and_scores_are_those_of_torch_before_and_after_a_move(settings, computes_like_dense):
    model = computes_like_dense(nn.Conv3d(8, 6, **settings), torch.randn(2, 8, 5, 6, 7))
    assert type(model[0]) is BlockSparseConv3d
    assert type(model[0].to_dense()) is nn.Conv3d


def test_an_input_without_a_batch_gives_an_output_without_one(computes_like_dense):
    computes_like_dense(nn.Conv3d(8, 6, 2), torch.randn(8, 3, 4, 5))


def test_the_output_is_contiguous_as_that_of_torch():
    model = nn.Sequential(nn.Conv3d(8, 8, 2))
    sparsify_(model, BlockSparsity(0.5, block=4))
    assert model(torch.randn(2, 8, 3, 4, 5)).is_contiguous()


def test_an_input_of_other_dimensions_is_refused():
    model = nn.Sequential(nn.Conv3d(8, 8, 3))
    sparsify_(model, BlockSparsity(0.5, block=4))
    with pytest.raises(SparsityError, match=r"a 3-D convolution got an input of shape \[8, 5, 5\]"):
        model(torch.randn(8, 5, 5))
