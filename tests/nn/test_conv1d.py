"""The block-sparse 1-D convolution against torch's."""

import pytest
import torch
from torch import nn

from acf.errors import SparsityError
from acf.nn import BlockSparseConv1d, BlockSparsity, sparsify_

SETTINGS = {
    "plain": {"kernel_size": 3},
    "one tap": {"kernel_size": 1},
    "strided and padded": {"kernel_size": 4, "stride": 3, "padding": 2},
    "dilated": {"kernel_size": 3, "dilation": 2, "padding": 1},
    "same": {"kernel_size": 4, "padding": "same", "dilation": 3},
    "reflect": {"kernel_size": 3, "padding": 2, "padding_mode": "reflect", "stride": 2},
    "circular": {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_outputs_gradients_and_scores_are_those_of_torch_before_and_after_a_move(settings, computes_like_dense):
    model = computes_like_dense(nn.Conv1d(8, 6, **settings), torch.randn(2, 8, 11))
    assert type(model[0]) is BlockSparseConv1d
    assert type(model[0].to_dense()) is nn.Conv1d


def test_an_input_without_a_batch_gives_an_output_without_one(computes_like_dense):
    computes_like_dense(nn.Conv1d(8, 6, 3, padding=1), torch.randn(8, 11))


def test_an_input_of_other_dimensions_is_refused():
    model = nn.Sequential(nn.Conv1d(8, 8, 3))
    sparsify_(model, BlockSparsity(0.5, block=4))
    with pytest.raises(SparsityError, match=r"got an input of shape \[2, 8, 5, 5\]; pass \[batch, 8, length\]"):
        model(torch.randn(2, 8, 5, 5))


def test_a_grouped_convolution_stays_dense_with_the_reason():
    model = nn.Sequential(nn.Conv1d(8, 8, 3, groups=2), nn.Linear(8, 8))
    summary = sparsify_(model, BlockSparsity(0.5, block=4))
    assert summary.left_dense == (("0", "a grouped convolution (groups=2)"),)
