"""The block-sparse transposed 2-D convolution against torch's."""

import pytest
import torch
from torch import nn

from acf.errors import SparsityError
from acf.nn import BlockSparseConvTranspose2d, BlockSparsity, sparsify_

SETTINGS = {
    "plain": {"kernel_size": 3},
    "upsampling": {"kernel_size": 4, "stride": 2, "padding": 1},
    "output padding": {"kernel_size": 3, "stride": (3, 2), "padding": 1, "output_padding": (2, 1)},
    "dilated": {"kernel_size": (3, 2), "dilation": (2, 3), "padding": (2, 1)},
    "output padding beyond the stride": {
        "kernel_size": 3,
        "stride": (2, 1),
        "dilation": 3,
        "padding": (4, 1),
        "output_padding": (2, 2),
    },
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_outputs_gradients_and_scores_are_those_of_torch_before_and_after_a_move(settings, computes_like_dense):
    model = computes_like_dense(nn.ConvTranspose2d(8, 6, **settings), torch.randn(2, 8, 5, 6))
    assert type(model[0]) is BlockSparseConvTranspose2d
    assert type(model[0].to_dense()) is nn.ConvTranspose2d


def test_an_input_without_a_batch_gives_an_output_without_one(computes_like_dense):
    computes_like_dense(nn.ConvTranspose2d(8, 6, 2, stride=2), torch.randn(8, 3, 4))


def test_a_block_is_outputs_by_inputs_as_asked_and_stored_the_other_way_round():
    model = nn.Sequential(nn.ConvTranspose2d(8, 6, 3))
    sparsify_(model, BlockSparsity(0.5, block=(2, 4)))
    assert model[0].weight.shape[1:] == (4, 2)
    assert (model[0].layout.rows, model[0].layout.cols) == (8, 9 * 6)
    with pytest.raises(SparsityError, match="block 4 does not divide out_channels 6"):
        sparsify_(nn.Sequential(nn.ConvTranspose2d(8, 6, 3)), BlockSparsity(0.5, block=(4, 2)))


@pytest.mark.parametrize("size", [(7, 13), (9, 14)], ids=["smallest", "greatest"])
def test_an_output_size_is_made_as_torch_makes_it(size):
    model = nn.Sequential(nn.ConvTranspose2d(8, 8, 3, stride=(3, 2), padding=1))
    sparsify_(model, BlockSparsity(0.5, block=4))
    x = torch.randn(2, 8, 3, 7)
    y = model[0](x, output_size=size)
    torch.testing.assert_close(y, model[0].to_dense()(x, output_size=size))
    assert y.shape[2:] == size


def test_an_impossible_output_size_is_refused_with_the_range():
    model = nn.Sequential(nn.ConvTranspose2d(8, 8, 2, stride=2))
    sparsify_(model, BlockSparsity(0.5, block=4))
    with pytest.raises(SparsityError, match=r"output_size \[10, 8\] cannot be made .* from \[8, 8\] up"):
        model[0](torch.randn(1, 8, 4, 4), output_size=[10, 8])
