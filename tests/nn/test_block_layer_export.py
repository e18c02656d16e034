"""Sparse models as exported programs and as ONNX, where a dense copy takes their place."""

import copy

import pytest
import torch
from torch import nn

import acf
from acf.errors import TopologyError

REMEDY = r"ONNX has no block-sparse product for BlockSparseConv2d; export a dense copy, acf\.densify_\(copy\.deepcopy"


def sparse_network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 8))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4))
    return model.eval()


def test_an_exported_program_takes_other_batch_sizes_and_survives_a_file(tmp_path):
    model = sparse_network()
    dynamic = ({0: torch.export.Dim("batch", min=1)},)
    program = torch.export.export(model, (torch.randn(3, 8, 4, 4),), dynamic_shapes=dynamic)
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    x = torch.randn(5, 8, 4, 4)
    torch.testing.assert_close(loaded(x), model(x))


def test_a_sparse_layer_names_the_remedy_while_onnx_exports(monkeypatch):
    model = sparse_network()
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    with pytest.raises(TopologyError, match=REMEDY):
        model(torch.randn(1, 8, 4, 4))


@pytest.mark.filterwarnings("ignore")
def test_a_dense_copy_gives_the_same_numbers_in_onnx_runtime(tmp_path):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    import onnxruntime

    model, x, path = sparse_network(), torch.randn(2, 8, 4, 4), tmp_path / "model.onnx"
    with pytest.raises(Exception, match=REMEDY):
        torch.onnx.export(model, (x,), path, dynamo=True, verbose=False)
    dense = acf.densify_(copy.deepcopy(model))
    torch.onnx.export(dense, (x,), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path)
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), model(x).detach(), rtol=1e-5, atol=1e-6)
    assert type(model[0]).__name__ == "BlockSparseConv2d"
