"""The product whose warps are divided by what they do: compiled here, and taken where it can run and pays."""

import importlib.util

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed (it comes with CUDA builds of torch)", allow_module_level=True)

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget

from acf.ops.triton import specialised
from acf.ops.triton.configs import product_configs

SHARED_MEMORY_BYTES = 232_448
"""What a program may use of a Hopper multiprocessor's shared memory."""


@pytest.fixture(autouse=True)
def _nothing_remembered():
    specialised.has_specialised.cache_clear()
    yield
    specialised.has_specialised.cache_clear()


@pytest.mark.skipif(
    not triton.__version__.startswith(specialised.GLUON_VERSIONS), reason="written for another version of Gluon"
)
@pytest.mark.parametrize(("block", "forward"), [(128, True), (64, False)])
def test_the_product_compiles_for_hopper_to_its_widest_matrix_instruction(block: int, forward: bool):
    from triton.experimental.gluon._runtime import GluonASTSource
    from triton.experimental.gluon.language import NVMMASharedLayout

    from acf.ops.triton.specialised_kernels import product_specialised_kernel as kernel

    config = next(c for c in product_configs(block, 2, "tf32", True) if c.kernel == "specialised")
    layout = NVMMASharedLayout(128, 16, rank=2)
    boxes = {
        "x": (256, config.depth),
        "weight": (block, config.depth) if forward else (config.depth, block),
        "out": (128 if block == 128 else 256, 64),
    }
    constants = {"block": block, "depth": config.depth, "stages": config.stages, "forward": forward}
    signature = dict.fromkeys(kernel.arg_names, "*i32")
    signature |= dict.fromkeys(("groups", "panels", "sorted_panels"), "i32") | dict.fromkeys(constants, "constexpr")
    signature |= {name: f"tensordesc<bf16[{rows}, {cols}],{layout!r}>" for name, (rows, cols) in boxes.items()}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    compiled = triton.compile(
        GluonASTSource(kernel, signature, places, {}),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": config.warps, "maxnreg": specialised.REGISTERS},
    )
    assert "wgmma.mma_async.sync.aligned.m64n256k16" in compiled.asm["ptx"]
    assert "cp.async.bulk.tensor.2d.shared" in compiled.asm["ptx"]
    assert compiled.metadata.shared <= SHARED_MEMORY_BYTES


@pytest.mark.parametrize(
    ("capability", "version", "device", "taken"),
    [
        ((9, 0), "3.6.0", 0, True),
        ((8, 0), "3.6.0", 0, False),
        ((9, 0), "3.7.0", 0, False),
        ((9, 0), "3.6.0", -1, False),
    ],
    ids=["Hopper", "an older chip", "another Gluon", "no GPU"],
)
def test_only_hopper_with_the_gluon_it_is_written_for_has_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], version: str, device: int, taken: bool
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(triton, "__version__", version)
    assert specialised.has_specialised(device) is taken


def test_small_products_are_not_specialised(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(specialised, "has_specialised", lambda device: True)
    x, weight = torch.empty(8192, 2048, device="meta"), torch.empty(410, 128, 128, device="meta")
    assert specialised.gains_by_specialising(x, weight)
    assert not specialised.gains_by_specialising(x[:1024], weight)


def test_a_known_product_gets_a_schedule_of_its_own_at_every_launch():
    launched: list[tuple[Tensor, ...]] = []

    def prepared(*operands: Tensor) -> bool:
        launched.append(operands)
        return True

    known = specialised.PreparedSpecialised(prepared, prepared)
    operands = [torch.zeros(4, dtype=torch.int32) for _ in range(6)]
    assert known(*operands)
    assert known(*operands)
    (offsets, schedule), product, (_, later), _ = launched
    assert offsets is operands[3]
    assert all(given is expected for given, expected in zip(product, [*operands, schedule], strict=True))
    assert schedule.shape == offsets.shape
    assert schedule is not later
