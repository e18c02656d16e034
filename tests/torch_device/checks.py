"""What ``torch.device("acf")`` does, as JSON on stdout. A process of its own: torch registers a device only once.

Products run on the backend named by the first argument.
"""

import copy
import gc
import io
import json
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import acf
from acf import torch_device
from acf.runtime import Device
from acf.torch_device.memory import host_storage

warnings.simplefilter("error")


def sparse_cnn() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2, bias=False),
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.GELU(),
        nn.Linear(32, 4),
    )
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.5, block=16))
    return model


def train(model: nn.Module, device: str, steps: int = 3) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    topology = acf.attach(model, optimizer, acf.BlockDST(total_steps=20, every=2, fraction=0.5))
    generator, losses = torch.Generator().manual_seed(1), []
    for _ in range(steps):
        x = torch.randn(4, 3, 6, 6, generator=generator).to(device)
        labels = torch.randint(0, 4, (4,), generator=generator).to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    topology.detach()
    return losses


def training() -> dict[str, Any]:
    on_host, on_device = sparse_cnn(), sparse_cnn().to("acf")
    host, device = train(on_host, "cpu"), train(on_device, "acf")
    buffers = zip(on_host.buffers(), on_device.buffers(), strict=True)
    return {
        "host": host,
        "device": device,
        "same_blocks": all(torch.equal(a, b.cpu()) for a, b in buffers if a.dtype == torch.int32),
        "devices": sorted({str(each.device) for each in on_device.parameters()}),
        "programs": sorted({span.name for span in runtime.timeline.spans if span.engine == "compute"}),
    }


def views() -> dict[str, Any]:
    base = torch.zeros(4, 6, device="acf")
    view = base[1:3].view(12)
    view.add_(1)
    resized = torch.arange(3.0).to("acf")
    resized.resize_(2, 2)
    return {
        "sum": base.sum().item(),
        "is_view": view._base is base,
        "transposed": base.t().contiguous().cpu().sum(1).tolist(),
        "resized": resized.cpu().flatten()[:3].tolist(),
        "out": torch.add(base, 1, out=torch.empty(0, device="acf")).sum().item(),
        "strided": torch.arange(12.0).to("acf").as_strided((2, 2), (3, 1), 1).tolist(),
    }


def serialization() -> dict[str, Any]:
    model, file = nn.Linear(4, 4).to("acf"), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    kept = torch.load(file)
    file.seek(0)
    on_host = torch.load(file, map_location="cpu")
    host_file = io.BytesIO()
    torch.save(on_host, host_file)
    host_file.seek(0)
    moved = torch.load(host_file, map_location="acf")
    model.load_state_dict(moved)
    same = all(torch.equal(kept[name].cpu(), on_host[name]) for name in on_host)
    return {
        "devices": [str(each["weight"].device) for each in (kept, on_host, moved)],
        "same": same,
        "copied": str(copy.deepcopy(model).weight.device),
    }


def mixed_precision() -> dict[str, Any]:
    layer, x = nn.Linear(8, 8).to("acf"), torch.randn(2, 8, device="acf")
    with torch.autocast("acf", dtype=torch.bfloat16):
        y = layer(x)
        loss = nn.functional.mse_loss(y, torch.zeros_like(y))
    loss.backward()  # type: ignore[no-untyped-call]
    assert layer.weight.grad is not None
    return {"output": str(y.dtype), "loss": str(loss.dtype), "gradient": str(layer.weight.grad.dtype)}


def fallbacks() -> dict[str, Any]:
    torch_device.reset_fallbacks()
    x = torch.ones(4, 4, device="acf")
    after_ones = len(torch_device.fallbacks())
    torch.relu(x)
    torch.relu(x)
    return {
        "names": [each.op for each in torch_device.fallbacks()],
        "after_ones": after_ones,
        "relu": next((each.calls, each.nbytes) for each in torch_device.fallbacks() if "relu" in each.op),
    }


def pinned_loader() -> dict[str, Any]:
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, pin_memory=True)
    made = torch.empty(4, pin_memory=True)
    return {
        "pinned": [batch.is_pinned() for (batch,) in loader],
        "made": made[2:].is_pinned(),
        "other": torch.ones(2).is_pinned(),
    }


def accelerator() -> dict[str, Any]:
    before = torch.accelerator.memory_allocated()
    x = torch.ones(64, 64, device="acf")
    first, second = torch.Stream(device="acf"), torch.Stream(device="acf")
    start, middle, end = (torch.Event(device="acf", enable_timing=True) for _ in range(3))
    spans = len(runtime.timeline.spans)
    with first:
        start.record()
        y = x @ x
        middle.record()
    second.wait_event(middle)
    with second:
        y @ x
        end.record()
    torch.accelerator.synchronize()
    products = [span for span in runtime.timeline.spans[spans:] if span.engine == "compute"]
    return {
        "name": str(torch.accelerator.current_accelerator()),
        "count": torch.accelerator.device_count(),
        "streams": len({span.stream for span in products}),
        "reached": [event.query() for event in (start, middle, end)],
        "elapsed_ms": [start.elapsed_time(middle), middle.elapsed_time(end)],
        "products_ms": [1e3 * (span.end_s - span.start_s) for span in products],
        "current": torch.accelerator.current_stream().stream_id,
        "bytes": torch.accelerator.memory_allocated() - before,
    }


def replaced_device() -> dict[str, Any]:
    old = torch.Stream(device="acf")
    torch_device.register(Device("reference"))
    try:
        old.synchronize()
    except RuntimeError as error:
        return {"error": str(error)}
    return {"error": ""}


def recomputation() -> dict[str, Any]:
    x = torch.ones(2, device="acf", requires_grad=True)
    y = checkpoint(lambda each: (each * 2).relu(), x, use_reentrant=False)
    y.sum().backward()
    assert x.grad is not None
    return {"gradient": x.grad.tolist()}


def memory() -> dict[str, Any]:
    tensor = torch.ones(16, device="acf")
    view, host = tensor[4:], weakref.ref(host_storage(tensor.untyped_storage()))
    del tensor
    gc.collect()
    held = host() is not None and view.sum().item() == 12
    del view
    gc.collect()
    return {"held_by_view": held, "freed": host() is None}


def errors() -> dict[str, Any]:
    def message(call: Callable[[], Any]) -> str:
        try:
            call()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    mixed: Callable[[], Tensor] = lambda: torch.ones(2, device="acf") + torch.ones(2)  # noqa: E731
    lstm = nn.LSTM(2, 2).to("acf")
    linear = nn.Linear(16, 16).to("acf")
    return {
        "mixed": message(mixed),
        "lstm": message(lambda: lstm(torch.ones(1, 1, 2, device="acf"))),
        "wide": message(lambda: linear(torch.ones(2, 32, device="acf"))),
        "narrow": message(lambda: linear(torch.ones(2, 8, device="acf"))),
        "on_host": message(lambda: linear(torch.ones(2, 16))),
        "other_dtype": message(lambda: torch.ones(2, 4, device="acf") @ torch.ones(4, 2, device="acf").bfloat16()),
    }


CHECKS: tuple[Callable[[], dict[str, Any]], ...] = (
    training,
    views,
    serialization,
    mixed_precision,
    fallbacks,
    pinned_loader,
    accelerator,
    recomputation,
    memory,
    errors,
    replaced_device,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch_device.register(Device(sys.argv[1]))
    runtime = torch_device.runtime_device()
    print(json.dumps({check.__name__: check() for check in CHECKS}))
