"""Trace files: what is written comes back, and nothing else is believed."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import nn

import acf
from acf.errors import TraceError
from acf.lowering import effectual_macs
from acf.trace import TracedConv
from acf.trace.file import FORMAT
from acf.trace.stored_bits import StoredBits


@pytest.fixture
def trace() -> acf.Trace:
    model = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 5))
    with acf.capture(model, label="saved") as trace:
        model(torch.randn(2, 2, 8, 8)).sum().backward()
    return trace


def test_a_trace_comes_back_as_it_was(trace: acf.Trace, tmp_path: Path) -> None:
    trace.save(tmp_path / "new folder" / "step.safetensors")
    loaded = acf.Trace.load(tmp_path / "new folder" / "step.safetensors")
    assert loaded.label == "saved"
    assert loaded.ops == trace.ops
    assert {key: bits.shape for key, bits in loaded.tensors.items()} == {
        key: bits.shape for key, bits in trace.tensors.items()
    }
    assert all(np.array_equal(bits.packed, trace.tensors[key].packed) for key, bits in loaded.tensors.items())


def test_operands_of_a_large_file_stay_in_it_until_they_are_played(
    trace: acf.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acf.trace.file.MOST_READ_BYTES", 0)
    trace.save(tmp_path / "step.safetensors")
    loaded = acf.Trace.load(tmp_path / "step.safetensors")
    assert all(isinstance(bits, StoredBits) for bits in loaded.tensors.values())
    assert effectual_macs(loaded) == effectual_macs(trace)


def test_a_large_file_that_is_truncated_later_is_refused_and_does_not_end_the_process(
    trace: acf.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acf.trace.file.MOST_READ_BYTES", 0)
    path = tmp_path / "step.safetensors"
    trace.save(path)
    loaded = acf.Trace.load(path)
    os.truncate(path, 100)
    with pytest.raises(TraceError, match="has become shorter than it was"):
        acf.simulate(loaded, "tensorcore")


def test_a_trace_may_be_saved_over_the_file_it_was_loaded_from(trace: acf.Trace, tmp_path: Path) -> None:
    path = tmp_path / "step.safetensors"
    trace.save(path)
    loaded = acf.Trace.load(path)
    loaded.save(path)
    assert effectual_macs(acf.Trace.load(path)) == effectual_macs(loaded) == effectual_macs(trace)


def test_every_truncation_is_refused_in_one_line(trace: acf.Trace, tmp_path: Path) -> None:
    whole = tmp_path / "whole.safetensors"
    trace.save(whole)
    content = whole.read_bytes()
    cut = tmp_path / "cut.safetensors"
    for length in (0, 4, 8, 100, len(content) // 2, len(content) - 1):
        cut.write_bytes(content[:length])
        with pytest.raises(acf.AcfError) as caught:
            acf.Trace.load(cut)
        assert "\n" not in str(caught.value)
        assert "cut.safetensors" in str(caught.value)


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return Path.touch, (tmp_path / "exploded",)

    path = tmp_path / "bomb.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(acf.AcfError, match="no safetensors file"):
        acf.Trace.load(path)
    assert not (tmp_path / "exploded").exists()


def test_a_foreign_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"weight": np.zeros(4, dtype=np.float32)}, path)
    with pytest.raises(acf.AcfError, match=r"is a safetensors file but no acf\.trace\.v1 trace"):
        acf.Trace.load(path)


def header(**changes: object) -> str:
    op = {"name": "fc", "phase": "forward", "a": "a", "b": "b"}
    return json.dumps({"label": "x", "ops": [op], "shapes": {"a": [2, 4], "b": [4, 2]}} | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Invalid JSON"),
        (header(surprise=1), "surprise"),
        (header(ops=[{"name": "fc", "phase": "sideways", "a": "a", "b": "b"}]), "sideways"),
        (header(ops=[{"name": "fc", "phase": "forward", "a": "a", "b": "c"}]), "'c', which is not in the trace"),
        (header(shapes={"a": [2, 4]}), "the header and the tensors differ"),
        (header(shapes={"a": [2, 4], "b": [400, 2]}), "needs 100 bytes"),
        (header(shapes={"a": [-2, -4], "b": [4, 2]}), "shape"),
    ],
)
def test_a_damaged_header_is_refused_by_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.safetensors"
    one_byte = np.zeros(1, dtype=np.uint8)
    save_file({"a": one_byte, "b": one_byte.copy()}, path, metadata={FORMAT: text})
    with pytest.raises(acf.AcfError, match=message):
        acf.Trace.load(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(acf.AcfError, match=r"absent\.safetensors is not a file"):
        acf.Trace.load(tmp_path / "absent.safetensors")


def test_a_failing_save_keeps_the_old_file(trace: acf.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step.safetensors"
    trace.save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(acf.AcfError, match="disk full"):
        trace.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_convolution_is_stored_under_the_names_of_the_first_format(trace: acf.Trace, tmp_path: Path) -> None:
    trace.save(tmp_path / "step.safetensors")
    with safe_open(tmp_path / "step.safetensors", framework="numpy") as file:
        stored = json.loads(file.metadata()[FORMAT])["ops"][0]["conv"]
    assert stored == {
        "input_size": [8, 8],
        "kernel_size": [3, 3],
        "stride": [2, 2],
        "padding": [1, 1],
        "dilation": [1, 1],
        "groups": 1,
    }


def test_a_convolution_of_an_old_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.safetensors"
    conv = {"input_size": [4, 4], "kernel_size": [3, 3], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}
    op = {"name": "conv", "phase": "forward", "a": "a", "b": "b", "conv": conv | {"groups": 1}}
    text = header(ops=[op], shapes={"a": [1, 1, 4, 4], "b": [8, 9]})
    bits = {"a": np.zeros(2, dtype=np.uint8), "b": np.zeros(9, dtype=np.uint8)}
    save_file(bits, path, metadata={FORMAT: text})
    (loaded,) = acf.Trace.load(path).ops
    assert loaded.conv == TracedConv((3, 3), padding=(1, 1), input_size=(4, 4))
