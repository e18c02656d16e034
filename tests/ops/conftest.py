"""Seeing which ops run."""

from collections.abc import Callable
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode


class OpLog(TorchDispatchMode):
    """Remembers the names of the ops of `acf` that run inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name().startswith("acf::"):
            self.names.add(func.name())
        return func(*args, **(kwargs or {}))


@pytest.fixture
def gradient_ops_of() -> Callable[[Callable[[], object]], set[str]]:
    """A function that runs another and gives the gradient ops of `acf` it called."""

    def run(action: Callable[[], object]) -> set[str]:
        with OpLog() as log:
            action()
        return {name for name in log.names if "grad" in name}

    return run
