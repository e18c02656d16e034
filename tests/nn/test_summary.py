"""The summary lists every weight of a model, sparse or dense, and the sparsity counts all of them."""

import pytest
import torch
from torch import nn

from acf.nn import BlockSparsity, NMSparsity, sparsify_, weight_sparsity

SPEC = BlockSparsity(sparsity=0.75, block=4)


class Experts(nn.Module):
    """Fused experts as Mixtral has them: one parameter ``[experts, out, in]``."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(4, 32, 16))


class Language(nn.Module):
    """An embedding, a recurrent layer, attention, fused experts, a normalisation and a head."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.lstm = nn.LSTM(16, 16)
        self.attention = nn.MultiheadAttention(16, 4)
        self.experts = Experts()
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 64, bias=False)
        if tied:
            self.head.weight = self.embed.weight


DENSE = 64 * 16 + 2 * 64 * 16 + 48 * 16 + 16 * 16 + 4 * 32 * 16


def without_attention(module: nn.Module, name: str) -> bool:
    return "attention" not in name


def test_every_parameter_of_two_or_more_dimensions_is_sparse_or_listed_with_the_reason():
    summary = sparsify_(Language(), SPEC, without_attention)
    assert [layer.name for layer in summary.sparse] == ["head"]
    assert dict(summary.left_dense) == {
        "embed.weight": "an embedding is looked up, not multiplied",
        "lstm.weight_ih_l0": "a recurrent layer hands its weights to a fused kernel as they are",
        "lstm.weight_hh_l0": "a recurrent layer hands its weights to a fused kernel as they are",
        "attention": "filter_fn leaves it out",
        "experts.gate_up_proj": "Experts has no sparse form (4 x 32 x 16 weights)",
    }


def test_the_sparsity_of_the_model_counts_the_weights_that_stay_dense_and_that_of_the_layers_does_not():
    model = Language()
    summary = sparsify_(model, SPEC, without_attention)
    assert summary.dense_weights == DENSE
    assert summary.sparsity == weight_sparsity(model, sparse_layers_only=True) == 0.75
    assert summary.model_sparsity == pytest.approx(0.75 * 1024 / (1024 + DENSE))
    assert weight_sparsity(model) == pytest.approx(summary.model_sparsity)
    assert str(summary).splitlines()[-1] == f"{DENSE} of {1024 + DENSE} weights (85.7%) are in dense layers"


def test_a_tied_weight_is_counted_and_listed_once():
    model = nn.Sequential(Language(tied=True), nn.Linear(16, 16))
    summary = sparsify_(model, SPEC, without_attention)
    reasons = dict(summary.left_dense)
    assert reasons["0.head"] == "its weight is shared with another module"
    assert "0.embed.weight" not in reasons
    assert summary.dense_weights == DENSE


def test_a_parameter_of_the_model_itself_is_listed_by_its_name():
    model = Experts()
    model.fc = nn.Linear(16, 16)
    assert "gate_up_proj" in dict(sparsify_(model, SPEC).left_dense)


def test_masked_groups_list_dense_weights_too_and_store_every_weight():
    model = nn.Sequential(nn.Embedding(8, 16), nn.Linear(16, 16))
    summary = sparsify_(model, NMSparsity(2, 8))
    assert dict(summary.left_dense) == {"0.weight": "an embedding is looked up, not multiplied"}
    assert (summary.sparsity, summary.dense_weights) == (0.75, 128)
    assert weight_sparsity(model) == 0.0


def test_a_dense_model_has_no_sparsity():
    assert weight_sparsity(Language()) == weight_sparsity(Language(), sparse_layers_only=True) == 0.0
    assert weight_sparsity(nn.ReLU()) == 0.0


@pytest.mark.parametrize(
    ("module", "name", "reason"),
    [
        (nn.GRU(8, 8), "weight_ih_l0", "a recurrent layer hands its weights to a fused kernel as they are"),
        (nn.LSTMCell(8, 8), "weight_ih", "a recurrent cell hands its weights to a fused kernel as they are"),
        (nn.EmbeddingBag(8, 8), "weight", "an embedding is looked up, not multiplied"),
        (nn.Bilinear(8, 8, 8), "weight", "Bilinear has no sparse form (8 x 8 x 8 weights)"),
        (nn.ConvTranspose1d(8, 8, 3), "weight", "ConvTranspose1d has no sparse form (8 x 8 x 3 weights)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_module_without_a_sparse_form_is_listed_with_the_reason(module, name, reason):
    summary = sparsify_(nn.Sequential(module, nn.Linear(8, 8)), SPEC)
    assert dict(summary.left_dense)[f"0.{name}"] == reason
    assert [layer.name for layer in summary.sparse] == ["1"]
