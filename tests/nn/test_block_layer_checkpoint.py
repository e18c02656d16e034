"""Saving and loading sparse models: the topology travels with the weights."""

import copy

import pytest
import torch
from torch import nn

from acf.errors import TopologyError
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_
from acf.sparse import BlockTopology

QUARTER = BlockSparsity(sparsity=0.75, block=4)


def sparse_model(seed: int, spec: BlockSparsity = QUARTER) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3), nn.Flatten(), nn.Linear(16 * 4, 16)
    )
    sparsify_(model, spec)
    return model.eval()


def values(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same_values(model: nn.Module, expected: dict[str, torch.Tensor]) -> None:
    state = model.state_dict()
    assert state.keys() == expected.keys()
    assert [name for name, value in state.items() if not torch.equal(value, expected[name])] == []


def test_loading_a_checkpoint_of_another_topology_strictly_makes_the_outputs_equal():
    saved, model = sparse_model(seed=1), sparse_model(seed=2)
    assert not torch.equal(saved[4].mask(), model[4].mask())
    result = model.load_state_dict(saved.state_dict(), strict=True)
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    x = torch.randn(2, 3, 6, 6)
    assert torch.equal(model(x), saved(x))
    assert_same_values(model, values(saved))


@pytest.mark.parametrize("assign", [False, True], ids=["copied", "assigned"])
def test_loading_rebuilds_the_walking_orders(assign):
    saved, model = sparse_model(seed=1), sparse_model(seed=2)
    model.load_state_dict(saved.state_dict(), assign=assign)
    for name, layer in block_sparse_layers(model).items():
        fresh = BlockTopology.build(layer.layout, layer.block_rows, layer.block_cols)
        for field, tensor in layer.topology._asdict().items():
            assert torch.equal(tensor, getattr(fresh, field)), f"{name}.{field}"
            assert torch.equal(tensor, getattr(saved.get_submodule(name), field)), f"{name}.{field}"


def test_a_checkpoint_holds_packed_weights_and_block_positions_and_nothing_derived():
    names = [name for name in sparse_model(seed=1).state_dict() if name.startswith("4.")]
    assert sorted(names) == ["4.bias", "4.block_cols", "4.block_rows", "4.weight"]


def test_a_checkpoint_survives_a_safetensors_file(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    saved, model = sparse_model(seed=1), sparse_model(seed=2)
    safetensors.save_file(saved.state_dict(), tmp_path / "model.safetensors")
    model.load_state_dict(safetensors.load_file(tmp_path / "model.safetensors"))
    assert_same_values(model, values(saved))


def test_a_checkpoint_survives_the_file_with_weights_only(tmp_path):
    saved, model = sparse_model(seed=1), sparse_model(seed=2)
    torch.save(saved.state_dict(), tmp_path / "model.pt")
    model.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert_same_values(model, values(saved))


@pytest.mark.parametrize(
    "spec",
    [BlockSparsity(sparsity=0.75, block=8), BlockSparsity(sparsity=0.5, block=4)],
    ids=["another block size", "another sparsity"],
)
def test_a_checkpoint_of_other_blocks_is_refused_by_name_with_both_shapes(spec):
    saved, model = sparse_model(seed=1, spec=spec), sparse_model(seed=2)
    with pytest.raises(TopologyError) as caught:
        model.load_state_dict(saved.state_dict())
    message = str(caught.value)
    assert message.startswith("2.weight in the checkpoint is ")
    assert str(list(saved[2].weight.shape)) in message
    assert str(list(model[2].weight.shape)) in message
    assert "sparsify_ the model with the block size and sparsity of the checkpoint" in message


def test_a_refused_checkpoint_loads_nothing_not_even_the_layers_that_would_fit():
    saved, model = sparse_model(seed=1, spec=BlockSparsity(sparsity=0.75, block=8)), sparse_model(seed=2)
    before = values(model)
    with pytest.raises(TopologyError):
        model.load_state_dict(saved.state_dict())
    assert_same_values(model, before)


@pytest.mark.parametrize(
    ("block_rows", "message"),
    [([99] * 4, r"block \(99, .*\) lies outside"), ([0] * 4, "named by two slots")],
    ids=["outside", "twice"],
)
def test_a_checkpoint_with_an_impossible_topology_is_refused_and_the_layer_stays(block_rows, message):
    model = nn.Sequential(nn.Linear(16, 16))
    sparsify_(model, QUARTER)
    state, before = values(model), values(model)
    state["0.block_rows"] = torch.tensor(block_rows, dtype=torch.int32)
    state["0.block_cols"] = torch.zeros(4, dtype=torch.int32)
    state["0.weight"] = torch.randn(4, 4, 4)
    with pytest.raises(TopologyError, match=message):
        model.load_state_dict(state)
    assert_same_values(model, before)


def test_a_dense_checkpoint_is_refused_by_a_sparse_model():
    model = sparse_model(seed=1)
    dense = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3), nn.Flatten(), nn.Linear(64, 16))
    with pytest.raises(TopologyError, match=r"2\.weight in the checkpoint is \[16, 8, 3, 3\]"):
        model.load_state_dict(dense.state_dict())


def test_a_loaded_model_does_not_share_memory_with_the_one_that_was_saved():
    saved, model = sparse_model(seed=1), sparse_model(seed=2)
    model.load_state_dict(saved.state_dict())
    before = values(saved)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.zero_()
    assert_same_values(saved, before)


def test_a_deep_copied_model_saves_the_same_checkpoint():
    model = sparse_model(seed=1)
    assert_same_values(copy.deepcopy(model), values(model))


@pytest.mark.parametrize("left_out", ["block_rows", "block_cols", "weight"])
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
def test_a_checkpoint_with_a_part_of_a_layer_is_refused_by_name_and_changes_nothing(left_out, strict):
    saved, model = sparse_model(seed=1), sparse_model(seed=2)
    before = values(model)
    state = {name: value for name, value in saved.state_dict().items() if name != f"4.{left_out}"}
    with pytest.raises(TopologyError, match=rf"only a part of 4: 4\.{left_out} is missing.*wrong places"):
        model.load_state_dict(state, strict=strict)
    assert_same_values(model, before)


def test_a_checkpoint_without_any_tensor_of_a_layer_may_be_loaded_when_not_strict():
    saved, model = sparse_model(seed=1), sparse_model(seed=2)
    before = values(model)
    model.load_state_dict({name: value for name, value in values(saved).items() if name[0] != "4"}, strict=False)
    expected = {name: before[name] if name[0] == "4" else value for name, value in values(saved).items()}
    assert_same_values(model, expected)


def test_a_dense_checkpoint_is_refused_with_the_advice_to_sparsify_afterwards():
    model = nn.Sequential(nn.Linear(16, 16))
    dense = model.state_dict()
    sparsify_(model, QUARTER)
    with pytest.raises(TopologyError, match="a dense weight, and this layer is sparse; load the dense checkpoint into"):
        model.load_state_dict(dense)


def test_a_checkpoint_of_a_newer_format_is_refused_by_the_layer_and_both_formats():
    saved, model = sparse_model(seed=1), sparse_model(seed=2)
    state, before = saved.state_dict(), values(model)
    assert state._metadata["4"] == {"version": 1}
    state._metadata["4"] = {"version": 2}
    with pytest.raises(TopologyError, match=r"4 was saved in format 2 of block-sparse layers.* up to 1; update acf"):
        model.load_state_dict(state)
    assert_same_values(model, before)
