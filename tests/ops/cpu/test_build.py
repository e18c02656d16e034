"""How the native CPU kernels are built, cached, and done without."""

import ctypes
import errno
import os
import shutil
import stat
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from acf.code_cache import code_directory
from acf.errors import AcfError
from acf.ops import reference
from acf.ops.cpu import build as cpu_build
from acf.ops.cpu import call as cpu_call
from acf.ops.cpu import kernels
from acf.ops.cpu.call import INSTRUCTION_SETS
from acf.ops.linear import block_linear_forward
from acf.sparse import BlockLayout, BlockTopology

pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in (os.environ.get("CXX") or "c++", "g++", "clang++")),
    reason="no C++ compiler",
)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(kernels.__file__).parents[3])
    variables = {**os.environ, "PYTHONPATH": source, **environment}
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)


# Compiled without optimising, which is sooner done.
CALL = (
    "from acf.ops.cpu import build as cpu_build\n"
    "cpu_build.COMMON_FLAGS = tuple('-O0' if flag == '-O3' else flag for flag in cpu_build.COMMON_FLAGS)\n"
    "import torch, acf.ops; from acf.ops.cpu import call\n"
    "from acf.sparse import BlockLayout, BlockTopology\n"
    "topology = BlockTopology.from_mask(BlockLayout(16, 16, 8, 8), torch.ones(2, 2, dtype=torch.bool))\n"
    "y = [acf.ops.block_linear(torch.ones(3, 16), torch.ones(4, 8, 8), topology) for _ in range(3)]\n"
    "assert bool((y[-1] == 16).all())\n"
    "print(call.instruction_set())\n"
)


def test_importing_builds_nothing(tmp_path: Path) -> None:
    answer = run_python("import acf.ops", ACF_CACHE_DIR=str(tmp_path / "cache"))
    assert answer.returncode == 0, answer.stderr
    assert not (tmp_path / "cache").exists()


ONE_FUNCTION = {
    "passes.cpp": "namespace ACF_ISA { int part() { return 1; } }\n",
    "dispatch.cpp": 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }\n',
}
"""Sources that compile at once, in place of the kernels."""


def test_of_two_that_need_the_kernels_at_once_one_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "native"
    sources.mkdir()
    for name, text in ONE_FUNCTION.items():
        (sources / name).write_text(text)
    monkeypatch.setattr(cpu_build, "NATIVE_DIRECTORY", sources)
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path / "cache"))
    builds: list[Path] = []
    build = cpu_build.build

    def counted(compiler: cpu_build.Compiler, scratch: Path) -> Path:
        builds.append(scratch)
        return build(compiler, scratch)

    monkeypatch.setattr(cpu_build, "build", counted)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: cpu_build._load().answer(), range(2)))
    assert found == [42, 42]
    assert len(builds) == 1


def test_an_unwritable_cache_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = code_directory() / cpu_build.library_name(cpu_build.find_compiler())
    assert cpu_build.load_library() is not None
    blocked = tmp_path / "file"
    blocked.write_text("a file where the directory should be")
    monkeypatch.setenv("ACF_CACHE_DIR", str(blocked / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cpu_build, "_loaded", [])
    places: list[Path] = []

    def copied(compiler: cpu_build.Compiler, scratch: Path) -> Path:
        places.append(scratch)
        return Path(shutil.copy(built, scratch))

    monkeypatch.setattr(cpu_build, "build", copied)
    assert cpu_build.load_library() is not None
    assert cpu_call.instruction_set() in INSTRUCTION_SETS
    assert [place.parent for place in places] == [tmp_path / f"acf-{os.getuid()}"]


def test_without_a_compiler_there_is_one_warning_and_the_right_result(tmp_path: Path) -> None:
    answer = run_python(CALL, ACF_CACHE_DIR=str(tmp_path), PATH=str(tmp_path), CXX="")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == "None"
    assert answer.stderr.count("CpuKernelWarning") == 1
    assert "install a C++ compiler" in answer.stderr


def test_a_compiler_that_fails_is_named_in_the_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "fake-cxx"
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit 0\necho "no such flag" >&2\nexit 1\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(fake))
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_build, "_loaded", [])
    with pytest.warns(cpu_build.CpuKernelWarning, match=r"fake-cxx failed: no such flag") as caught:
        assert cpu_build.load_library() is None
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cpu_build.load_library() is None


def test_a_compiler_that_hangs_or_speaks_no_utf8_is_named_in_the_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_build, "BUILD_SECONDS", 0.5)
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path / "cache"))
    for action, message in (("exec sleep 60", "no end after 0.5 s"), (r"printf 'caf\351\n' >&2; exit 1", "caf")):
        fake = tmp_path / "fake-cxx"
        fake.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit 0\n{action}\n')
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("CXX", str(fake))
        monkeypatch.setattr(cpu_build, "_loaded", [])
        with pytest.warns(cpu_build.CpuKernelWarning, match=f"fake-cxx failed: {message}"):
            assert cpu_build.load_library() is None


def test_a_disk_that_is_full_while_the_kernels_are_built_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaint = "cc1plus: fatal error: error writing to passes.s: No space left on device"
    fake = tmp_path / "fake-cxx"
    fake.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit 0\necho "{complaint}" >&2\nexit 1\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(fake))
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_build, "_loaded", [])
    with pytest.warns(cpu_build.CpuKernelWarning, match=r"No space left on device.*; free some space, or") as caught:
        assert cpu_build.load_library() is None
    assert len(caught) == 1


def test_a_disk_that_is_full_when_the_kernels_are_kept_costs_one_warning_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(compiler: cpu_build.Compiler, scratch: Path) -> Path:
        (scratch / "library.so").write_bytes(b"code")
        monkeypatch.setattr(Path, "write_bytes", full)
        return scratch / "library.so"

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_build, "build", built)
    monkeypatch.setattr(cpu_build, "_loaded", [])
    with pytest.warns(cpu_build.CpuKernelWarning, match=r"No space left on device.*; free some space, or"):
        assert cpu_build.load_library() is None
    assert [path for path in (tmp_path / "cache").iterdir() if path.suffix != ".lock"] == []


def test_a_compiler_without_bfloat16_instructions_builds_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = cpu_build.find_compiler()
    old = tmp_path / "old-cxx"
    refusal = "case \"$*\" in *-mavx512bf16*) echo 'unrecognized option' >&2; exit 1;; esac"
    old.write_text(f'#!/bin/sh\n{refusal}\nexec {real.command} "$@"\n')
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    unoptimised = tuple("-O0" if flag == "-O3" else flag for flag in cpu_build.COMMON_FLAGS)
    monkeypatch.setattr(cpu_build, "COMMON_FLAGS", unoptimised)
    library = cpu_build.build(cpu_build.Compiler(str(old), real.version), tmp_path)
    monkeypatch.setattr(cpu_build, "_loaded", [ctypes.CDLL(str(library))])
    assert cpu_call.instruction_set() in ("portable", "avx2", "avx512")
    monkeypatch.setattr(kernels, "_pays", lambda *arguments: True)  # not the dense product
    topology = BlockTopology.from_mask(BlockLayout(16, 16, 8, 8), torch.ones(2, 2, dtype=torch.bool))
    x, weight = torch.randn(5, 16).bfloat16(), torch.randn(4, 8, 8).bfloat16()
    expected = reference.linear(x.double(), weight.double(), topology)
    error = (block_linear_forward(x, weight, None, *topology).double() - expected).norm() / expected.norm()
    assert float(error) < 8e-3


def test_the_environment_turns_the_kernels_off(tmp_path: Path) -> None:
    products = CALL.partition("print")[0]
    answer = run_python(products, ACF_CACHE_DIR=str(tmp_path / "cache"), ACF_CPU_KERNELS="0")
    assert answer.returncode == 0, answer.stderr
    assert not (tmp_path / "cache").exists()


def test_an_unknown_instruction_set_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_call._Cap, "name", "avx9")
    with pytest.raises(
        AcfError, match=r"ACF_CPU_ISA 'avx9' is no instruction set .*; use one of portable, avx2, avx512"
    ):
        cpu_call.instruction_set()
