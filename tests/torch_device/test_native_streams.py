"""Without a compiler, one line says what of the device is missing."""

import pytest

from acf.ops.cpu.build import KernelBuildError
from acf.torch_device import native_streams


def test_a_machine_without_a_compiler_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler() -> None:
        raise KernelBuildError("no C++ compiler found ($CXX, c++, g++, clang++)")

    monkeypatch.setattr(native_streams, "find_compiler", no_compiler)
    with pytest.warns(
        native_streams.TorchDeviceWarning, match=r"no C\+\+ compiler found.*torch.Stream and torch.Event"
    ):
        assert not native_streams.connect_streams()


def test_an_error_in_python_reaches_torch_as_text() -> None:
    question = len(native_streams.ANSWERS) - 4  # bytes in use
    answer, message = native_streams.ctypes.c_double(), native_streams.ctypes.create_string_buffer(1024)
    assert native_streams._answer(question, 0, 0, answer, message) == 0
    assert answer.value >= 0
    assert native_streams._answer(1, 10**9, 0, answer, message) == 1
    assert message.value.startswith(b"TorchDeviceError: stream 1000000000 is not one of")
