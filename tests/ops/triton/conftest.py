"""Tests in Triton's interpreter run in a process of their own, which `tests/ops/test_triton_interpreted.py` starts."""

from typing import Any

import pytest

from tests.ops.triton.interpreted import INTERPRETING

collect_ignore_glob = [] if INTERPRETING else ["test_*_interpreted.py"]

if INTERPRETING:
    import inspect

    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    @pytest.fixture(autouse=True)
    def _interpreter_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
        """Triton 3.6's interpreter lacks two things: NumPy 2.4's stricter scalars, and products of bfloat16."""
        patch_tensor, dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot

        def patched(tensor: Any, *scope: Any) -> None:
            patch_tensor(tensor, *scope)
            set_attribute = scope[0].set_attr if scope else setattr  # Triton 3.4 has no scope
            set_attribute(tensor, "__index__", lambda self: int(self.handle.data.item()))
            set_attribute(tensor, "__bool__", lambda self: bool(self.handle.data.all()))

        def widened(handle: Any) -> Any:
            if handle.dtype.scalar != tl.bfloat16:
                return handle
            return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

        monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)
        monkeypatch.setattr(
            interpreter.InterpreterBuilder,
            "create_dot",
            lambda self, a, b, *rest: dot(self, widened(a), widened(b), *rest),
        )

    BUILTINS: dict[Any, list[str]] = {}
    """Names of Triton's builtins by module or class, as they are before the first kernel runs."""

    @pytest.fixture(autouse=True)
    def _builtins_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
        """Search a module for builtins once: the interpreter does at every call, which took a third of these tests."""

        def patch_builtins(package: Any, *rest: Any) -> None:
            if package not in BUILTINS:
                BUILTINS[package] = [name for name, each in inspect.getmembers(package) if tl.core.is_builtin(each)]
            for name in BUILTINS[package]:
                if tl.core.is_builtin(member := getattr(package, name)):
                    interpreter._patch_attr(package, name, member, *rest)

        monkeypatch.setattr(interpreter, "_patch_builtin", patch_builtins)
