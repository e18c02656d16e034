"""The transposed linear layer of Hugging Face transformers, and models that are built of it."""

import copy
import io

import pytest
import torch
from torch import Tensor, nn

from acf.masks import BlockDST
from acf.nn import BlockSparseTransposedLinear, BlockSparsity, densify_, sparsify_, weight_sparsity
from acf.train import attach


class Conv1D(nn.Module):
    """What transformers' Conv1D does: ``x @ weight + bias`` with a weight ``[in, out]``."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


Conv1D.__module__ = "transformers.pytorch_utils"


def test_a_transposed_layer_computes_the_same_as_long_as_no_block_is_dropped():
    model = nn.Sequential(Conv1D(24, 16))
    dense, x = copy.deepcopy(model), torch.randn(3, 5, 16)
    sparsify_(model, BlockSparsity(sparsity=0.0, block=8))
    assert type(model[0]) is BlockSparseTransposedLinear
    torch.testing.assert_close(model(x), dense(x))


def test_a_densified_layer_has_its_class_and_its_orientation_again():
    model = nn.Sequential(Conv1D(16, 16))  # square, so that a transposed weight would load in silence
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    x = torch.randn(3, 16)
    y, sparsity = model(x), weight_sparsity(model)
    densify_(model)
    assert type(model[0]) is Conv1D
    assert sparsity == 0.5
    torch.testing.assert_close(x @ model[0].weight + model[0].bias, y)


def test_a_layer_of_the_same_name_from_elsewhere_is_not_touched():
    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 16))

    model = nn.Sequential(Conv1D(), nn.Linear(16, 16))
    summary = sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    assert [layer.name for layer in summary.sparse] == ["1"]
    assert type(model[0]) is Conv1D


def build_bert(transformers):
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, vocab_size=64
    )
    return transformers.BertForMaskedLM(config)


def build_gpt2(transformers):
    config = transformers.GPT2Config(
        n_embd=32, n_layer=1, n_head=4, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


@pytest.mark.parametrize(
    ("build", "sparse", "tied"),
    [(build_bert, 7, "cls.predictions.decoder"), (build_gpt2, 4, "lm_head")],
    ids=["BERT", "GPT-2"],
)
@pytest.mark.filterwarnings("default")
def test_a_hugging_face_model_built_from_a_config_trains_sparse_with_its_embeddings_still_tied(build, sparse, tied):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = build(transformers)
    summary = sparsify_(model, BlockSparsity(sparsity=0.75, block=8))
    assert len(summary.sparse) == sparse
    assert dict(summary.left_dense)[tied] == "its weight is shared with another module"
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    controller = attach(model, optimizer, BlockDST(total_steps=20, every=3))
    tokens = torch.randint(64, (4, 16))
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert any(change.moved_blocks for change in controller.changes)
    assert summary.sparsity == controller.sparsity == 0.75
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    controller.detach()
    logits = model.eval()(input_ids=tokens).logits
    torch.testing.assert_close(densify_(model)(input_ids=tokens).logits, logits)
