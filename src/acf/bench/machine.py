"""The device that a benchmark runs on, and its name in records."""

import platform

import torch

from acf.errors import MissingDependencyError, SparsityError


def choose_device(device: str) -> str:
    """The name torch knows the device by; "auto" is the GPU where there is one."""
    if device not in ("auto", "cpu", "cuda"):
        raise SparsityError(f"device {device!r} is not one of auto, cpu, cuda; use one of these names")
    if device == "cuda" and not torch.cuda.is_available():
        raise MissingDependencyError("torch can use no GPU here; use --device cpu, or install a CUDA build of torch")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def machine_name(device: str) -> str:
    """Processor and version of torch."""
    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"
    return f"{name}, torch {torch.__version__}"
