"""A sparse model in one safetensors file, which gives back layers, topology and weights."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import acf
from acf.errors import FileError, TopologyError
from acf.gradients import sparsifier_of
from acf.nn import block_sparse_layers
from acf.nn.structure import BUILDABLE, build, describe


def dense_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(8, 16, 3, stride=2, padding=1, padding_mode="reflect"),
        nn.BatchNorm2d(16),
        nn.Sequential(nn.GELU("tanh"), nn.Conv2d(16, 16, (1, 3), padding="same", bias=False), nn.MaxPool2d(2)),
        nn.Flatten(),
        acf.FusedSequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)),
        nn.Dropout(0.1),
    )


def moved_cnn(**settings) -> nn.Module:
    """A sparse model after some training, so that slots are in no order and statistics are not those of a new one."""
    torch.manual_seed(0)
    model = dense_cnn()
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4, **settings))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    acf.attach(model, optimizer, acf.BlockDST(total_steps=4, every=1, stop_at=1.0))
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 8, 8, 8)).square().mean().backward()
        optimizer.step()
    return model.eval()


class Tied(nn.Module):
    """A model with code of its own and a tied weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc = nn.Embedding(32, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.fc(self.embed(tokens)))


def assert_same(loaded: nn.Module, saved: nn.Module) -> None:
    assert list(loaded.state_dict()) == list(saved.state_dict())
    for name, value in saved.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    for name, layer in block_sparse_layers(saved).items():
        other = loaded.get_submodule(name)
        assert type(other) is type(layer)
        assert all(map(torch.equal, other.topology, layer.topology)), name
        settings = [(each.target_blocks, each.balanced, each.starts_dense) for each in (layer, other)]
        assert settings[0] == settings[1]


@pytest.mark.parametrize("settings", [{}, {"distribution": "balanced"}, {"init": "dense"}], ids=str)
def test_a_model_of_torchs_modules_needs_nothing_but_the_file(tmp_path, settings):
    saved = moved_cnn(**settings)
    acf.save_sparse(saved, tmp_path / "model.safetensors")
    loaded = acf.load_sparse(tmp_path / "model.safetensors")
    assert_same(loaded, saved)
    assert not loaded.training
    x = torch.randn(2, 8, 8, 8)
    assert torch.equal(loaded(x), saved(x))


def test_a_loaded_model_goes_on_training_and_its_blocks_move(tmp_path):
    acf.save_sparse(moved_cnn(), tmp_path / "model.safetensors")
    model = acf.load_sparse(tmp_path / "model.safetensors").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    controller = acf.attach(model, optimizer, acf.BlockDST(total_steps=4, every=1))
    model(torch.randn(4, 8, 8, 8)).square().mean().backward()
    optimizer.step()
    assert sum(change.moved_blocks for change in controller.changes) > 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_dense_model_of_the_same_class_becomes_the_saved_one(tmp_path, device):
    torch.manual_seed(0)
    saved = Tied()
    acf.sparsify_(saved, acf.BlockSparsity(0.5, block=4))
    acf.save_sparse(saved, tmp_path / "model.safetensors")
    assert "head.weight" not in load_file(tmp_path / "model.safetensors")
    with torch.device(device):
        model = Tied()
    assert acf.load_sparse(tmp_path / "model.safetensors", model) is model
    assert_same(model, saved)
    tokens = torch.arange(8)
    assert torch.equal(model(tokens), saved(tokens))


def test_a_model_with_code_of_its_own_is_refused_without_a_model_by_its_class(tmp_path):
    model = Tied()
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4))
    acf.save_sparse(model, tmp_path / "model.safetensors")
    with pytest.raises(FileError, match="holds the weights of a Tied, whose code is no part of a file; pass a dense"):
        acf.load_sparse(tmp_path / "model.safetensors")


def test_tied_weights_of_torchs_modules_are_tied_again(tmp_path):
    model = nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 16), nn.Linear(16, 32, bias=False))
    model[2].weight = model[0].weight
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4))
    acf.save_sparse(model, tmp_path / "model.safetensors")
    loaded = acf.load_sparse(tmp_path / "model.safetensors")
    assert loaded[2].weight is loaded[0].weight
    assert torch.equal(loaded(torch.arange(4)), model(torch.arange(4)))


def test_masked_groups_and_sparse_gradients_come_back_with_their_settings(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    acf.sparsify_(model, acf.NMSparsity(2, 8, method="sr-ste", decay=1e-3))
    acf.sparsify_(model, acf.GradientSparsity(0.7, method="random", seed=3))
    model(torch.randn(4, 16)).sum().backward()
    acf.save_sparse(model, tmp_path / "model.safetensors")
    loaded = acf.load_sparse(tmp_path / "model.safetensors")
    assert_same(loaded, model)
    assert loaded[0].spec == model[0].spec
    assert sparsifier_of(loaded[2]).spec == sparsifier_of(model[2]).spec
    assert sparsifier_of(loaded[2]).seed == sparsifier_of(model[2]).seed
    x = torch.randn(4, 16)
    assert torch.equal(loaded(x), model(x))


def test_the_file_holds_the_state_dict_and_plain_json(tmp_path):
    saved = moved_cnn()
    acf.save_sparse(saved, tmp_path / "model.safetensors")
    assert load_file(tmp_path / "model.safetensors").keys() == saved.state_dict().keys()
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        header = json.loads(file.metadata()["acf_sparse"])
    assert header["version"] == 1
    assert header["blocks"]["0"]["shape"] == [16, 72]


def change_header(path, **changes) -> None:
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["acf_sparse"])
    save_file(load_file(path), path, metadata={"acf_sparse": json.dumps({**header, **changes})})


def test_a_file_of_a_newer_format_and_one_with_unknown_contents_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    acf.save_sparse(moved_cnn(), path)
    change_header(path, code="import os")
    with pytest.raises(FileError, match="says code of its model, which no release of acf writes"):
        acf.load_sparse(path)
    change_header(path, version=2)
    with pytest.raises(FileError, match="has format 2 of sparse models, this release of acf reads formats up to 1"):
        acf.load_sparse(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": 3}, "blocks is 3 and no object with fields"),
        ({"aliases": {"a": 1}}, "aliases.a is 1 and no text"),
        ({"aliases": {"a": "nothing"}}, "names nothing, which it does not hold"),
        ({"gradients": "x"}, "gradients is 'x' and no object with fields"),
        ({"groups": {"0": {"kind": "linear", "spec": {"n": 9, "m": 4}}}}, "does not say what its model is"),
        ({"version": "1"}, "version is '1' and no integer"),
    ],
)
def test_a_header_with_values_of_other_kinds_is_refused_by_the_value(tmp_path, change, message):
    path = tmp_path / "model.safetensors"
    acf.save_sparse(moved_cnn(), path)
    change_header(path, **change)
    with pytest.raises((FileError, TopologyError), match=message):
        acf.load_sparse(path)


def test_integers_in_place_of_a_weight_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    acf.save_sparse(nn.Sequential(nn.Linear(8, 8)), path)
    with safe_open(path, framework="pt") as file:
        metadata = {"acf_sparse": file.metadata()["acf_sparse"]}
    tensors = load_file(path)
    save_file({**tensors, "0.bias": tensors["0.bias"].to(torch.int16)}, path, metadata=metadata)
    with pytest.raises(TopologyError, match=r"has 0\.bias as int16, which is no floating-point type"):
        acf.load_sparse(path)


def test_a_file_that_names_a_class_which_is_not_torchs_builds_nothing(tmp_path):
    path = tmp_path / "model.safetensors"
    acf.save_sparse(moved_cnn(), path)
    change_header(path, structure={"class": "os.system", "arguments": {"command": "true"}})
    with pytest.raises(FileError, match="describes no model of torch's modules"):
        acf.load_sparse(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.__setitem__(0, nn.Conv2d(8, 32, 3)), "has 0 as a matrix of"),
        (lambda model: model.__setitem__(0, nn.Conv2d(8, 18, 3)), "does not fit 18 x 8 outputs x inputs"),
        (lambda model: model.__setitem__(0, nn.ReLU()), "0 is a ReLU, which .* has as a sparse layer"),
        (lambda model: model.__setitem__(1, nn.BatchNorm2d(8)), r"has \[16\] as 1\.weight and this model \[8\]"),
        (lambda model: model.append(nn.Linear(2, 2)), r"has nothing as 6\.weight and this model \[2, 2\]"),
        (lambda model: model.__delitem__(4), "does not have"),
    ],
    ids=["wider", "undivided", "other kind", "other norm", "more", "fewer"],
)
def test_a_model_that_does_not_fit_is_refused_by_name_and_stays_as_it_is(tmp_path, change, message):
    acf.save_sparse(moved_cnn(), tmp_path / "model.safetensors")
    model = dense_cnn()
    change(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(TopologyError, match=message):
        acf.load_sparse(tmp_path / "model.safetensors", model)
    assert block_sparse_layers(model) == {}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_sparse_model_is_refused_as_the_place_to_load_into(tmp_path):
    model = moved_cnn()
    acf.save_sparse(model, tmp_path / "model.safetensors")
    with pytest.raises(TopologyError, match=r"sparse already.*pass a dense model"):
        acf.load_sparse(tmp_path / "model.safetensors", model)


@pytest.mark.parametrize("content", [None, b"", b"no safetensors"], ids=["none", "empty", "text"])
def test_what_is_no_file_of_tensors_is_refused(tmp_path, content):
    path = tmp_path / "model.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError, match="is no safetensors file"):
        acf.load_sparse(path)


def test_a_model_without_values_is_not_saved(tmp_path):
    with pytest.raises(TopologyError, match=r"0\.weight is a sharded tensor or one without values"):
        acf.save_sparse(nn.Sequential(nn.Linear(4, 4, device="meta")), tmp_path / "model.safetensors")


def test_a_dtype_that_safetensors_does_not_hold_is_refused_by_the_tensor_and_leaves_nothing(tmp_path):
    with pytest.raises(FileError, match=r"0\.weight is torch\.complex128, which this safetensors does not hold; save"):
        acf.save_sparse(nn.Sequential(nn.Linear(4, 4, dtype=torch.complex128)), tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


ARGUMENTS = {
    "Linear": (4, 8, False), "Conv2d": (4, 8, 3, 2, 1, 2), "Embedding": (8, 4, 0), "Unflatten": (1, (2, 2)),
    "Upsample": (None, 2.0), "LeakyReLU": (0.2,), "Softmax": (1,), "LogSoftmax": (1,), "BatchNorm1d": (4, 1e-3, 0.2),
    "BatchNorm2d": (4,), "LayerNorm": ((2, 4), 1e-3), "RMSNorm": (4,), "GroupNorm": (2, 4), "MaxPool2d": (3, 2, 1),
    "AvgPool2d": (3, 2), "AdaptiveAvgPool2d": ((1, 2),), "Conv1d": (4, 8, 3, 2, 1, 2), "Conv3d": (4, 8, (1, 2, 3), 2),
    "ConvTranspose2d": (4, 8, 3, 2, 1, 1), "BatchNorm3d": (4,), "MaxPool1d": (3, 2, 1), "MaxPool3d": (3, 2, 1),
    "AvgPool1d": (3, 2), "AvgPool3d": (3, 2), "AdaptiveAvgPool1d": (2,), "AdaptiveAvgPool3d": ((1, 2, 3),),
}  # fmt: skip


@pytest.mark.parametrize("name", BUILDABLE)
def test_every_class_that_a_file_may_name_is_built_as_it_was(name):
    module = BUILDABLE[name](*ARGUMENTS.get(name, ()))
    built = build(json.loads(json.dumps(describe(module))))
    assert type(built) is type(module)
    assert repr(built) == repr(module)
    assert {key: value.shape for key, value in built.state_dict().items()} == {
        key: value.shape for key, value in module.state_dict().items()
    }


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("way", ["load_sparse", "from_pretrained"])
def test_a_model_of_hugging_face_is_saved_and_loaded_in_its_own_format(tmp_path, way):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 16}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)

    class SparseGPT2(transformers.GPT2LMHeadModel):
        def __init__(self, config) -> None:
            super().__init__(config)
            acf.sparsify_(self, acf.BlockSparsity(0.5, block=8))

    torch.manual_seed(0)
    saved = SparseGPT2(config).eval()
    saved.save_pretrained(tmp_path)
    if way == "from_pretrained":
        loaded = SparseGPT2.from_pretrained(tmp_path).eval()
    else:
        loaded = acf.load_sparse(tmp_path, transformers.GPT2LMHeadModel(config)).eval()
    tokens = torch.arange(8)[None]
    assert torch.equal(loaded(tokens).logits, saved(tokens).logits)
    assert_same(loaded, saved)


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "absent"])
def test_a_name_that_no_file_has_is_refused_in_one_line(name):
    with pytest.raises(FileError, match="is no safetensors file") as refused:
        acf.load_sparse(name)
    assert len(str(refused.value).splitlines()) == 1
