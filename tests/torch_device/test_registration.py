"""``torch.device("acf")``: models, autograd, AMP, files and loaders work as with torch's own devices."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from acf import torch_device
from acf.torch_device import TorchDeviceError

DOOR = "_setup_privateuseone_for_python_backend"
needs_door = pytest.mark.skipif(
    not hasattr(torch.utils.backend_registration, DOOR), reason="this torch registers no device from Python"
)


@pytest.fixture(scope="module")
def outcome() -> dict[str, Any]:
    """One process for all: torch registers a device once, and every other test would see it."""
    script = Path(__file__).with_name("checks.py")
    done = subprocess.run([sys.executable, script, "sim"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_door
def test_a_sparse_model_trains_on_the_device_as_on_the_host(outcome: dict[str, Any]) -> None:
    found = outcome["training"]
    assert found["device"] == pytest.approx(found["host"], rel=2e-2)
    assert found["device"] != found["host"]
    assert found["same_blocks"]
    assert found["devices"] == ["acf:0"]
    assert found["programs"] == [
        "convolution forward",
        "convolution weight_grad",
        "mm forward",
        "sparse forward",
        "sparse input_grad",
        "sparse weight_grad",
    ]


@needs_door
def test_views_share_memory_and_resizing_keeps_values(outcome: dict[str, Any]) -> None:
    found = outcome["views"]
    assert found["sum"] == 12
    assert found["is_view"]
    assert found["transposed"] == [2.0] * 6
    assert found["resized"] == [0.0, 1.0, 2.0]
    assert found["out"] == 36
    assert found["strided"] == [[1.0, 2.0], [4.0, 5.0]]


@needs_door
def test_files_keep_the_device_and_load_elsewhere(outcome: dict[str, Any]) -> None:
    assert outcome["serialization"] == {"devices": ["acf:0", "cpu", "acf:0"], "same": True, "copied": "acf:0"}


@needs_door
def test_autocast_multiplies_bf16_and_takes_losses_in_float32(outcome: dict[str, Any]) -> None:
    assert outcome["mixed_precision"] == {
        "output": "torch.bfloat16",
        "loss": "torch.float32",
        "gradient": "torch.float32",
    }


@needs_door
def test_an_op_without_a_program_is_counted_with_its_bytes(outcome: dict[str, Any]) -> None:
    found = outcome["fallbacks"]
    assert found["names"] == ["aten.relu.default", "aten.fill_.Scalar"]
    assert found["after_ones"] == 1
    assert found["relu"] == [2, 2 * 2 * 64]


@needs_door
def test_a_data_loader_pins_memory(outcome: dict[str, Any]) -> None:
    assert outcome["pinned_loader"] == {"pinned": [True, True], "made": True, "other": False}


@needs_door
def test_streams_and_events_of_torch_are_those_of_the_device(outcome: dict[str, Any]) -> None:
    found = outcome["accelerator"]
    assert (found["name"], found["count"], found["current"]) == ("acf", 1, 0)
    assert found["streams"] == 2
    assert found["reached"] == [True, True, True]
    for elapsed, product in zip(found["elapsed_ms"], found["products_ms"], strict=True):
        assert elapsed >= product > 0
    assert found["bytes"] == 2 * 4 * 64 * 64


@needs_door
def test_a_stream_of_a_replaced_device_is_refused(outcome: dict[str, Any]) -> None:
    assert "is not one of Device('reference'); make one with torch.Stream" in outcome["replaced_device"]["error"]


@needs_door
def test_a_checkpointed_segment_is_computed_again(outcome: dict[str, Any]) -> None:
    assert outcome["recomputation"] == {"gradient": [2.0, 2.0]}


@needs_door
def test_memory_is_freed_with_the_last_tensor(outcome: dict[str, Any]) -> None:
    assert outcome["memory"] == {"held_by_view": True, "freed": True}


@needs_door
def test_what_cannot_run_is_refused_by_name(outcome: dict[str, Any]) -> None:
    assert "found at least two devices, acf:0 and cpu" in outcome["errors"]["mixed"]
    assert outcome["errors"]["lstm"].startswith(
        "TorchDeviceError: aten._thnn_fused_lstm_cell.default has neither a program nor a kernel for the host"
    )


@needs_door
def test_operands_of_a_product_that_do_not_fit_are_refused(outcome: dict[str, Any]) -> None:
    assert "mat1 and mat2 shapes cannot be multiplied (2x32 and 16x16)" in outcome["errors"]["wide"]
    assert "mat1 and mat2 shapes cannot be multiplied (2x8 and 16x16)" in outcome["errors"]["narrow"]
    assert "one operand is on cpu and another on acf; move both" in outcome["errors"]["on_host"]
    assert "same dtype" in outcome["errors"]["other_dtype"]


def test_a_torch_without_the_door_is_refused_with_what_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.utils.backend_registration, DOOR, raising=False)
    with pytest.raises(TorchDeviceError, match=r"has no _setup_privateuseone.*with acf.offload\(model, device\)"):
        torch_device.register()
    assert not torch_device.is_registered()


@needs_door
def test_a_device_of_another_package_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "npu")
    with pytest.raises(TorchDeviceError, match="PrivateUse1 is already the device 'npu' of another package"):
        torch_device.register()
