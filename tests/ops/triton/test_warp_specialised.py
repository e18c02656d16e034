"""The warp-specialised products: compiled here for Hopper, and chosen where they can run and pay."""

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed (it comes with CUDA builds of torch)", allow_module_level=True)

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget

from acf.ops import dense_products
from acf.ops.mlp import packed_slopes
from acf.ops.triton import warp_specialised
from acf.ops.triton.configs import WARP_SPECIALISED_PRODUCT

SHARED_MEMORY_BYTES = 232_448
"""What a program may use of a Hopper multiprocessor's shared memory."""


@pytest.fixture(autouse=True)
def _nothing_remembered():
    warp_specialised.has_warp_specialisation.cache_clear()
    yield
    warp_specialised.has_warp_specialisation.cache_clear()


def compiled_for_hopper(name: str, block: int, boxes: dict[str, Any], **constants: bool | str) -> Any:
    """A kernel of `warp_specialised_kernels`, whose operands are pointers to integers but for ``boxes`` in bfloat16."""
    from triton.experimental.gluon._runtime import GluonASTSource
    from triton.experimental.gluon.language import NVMMASharedLayout

    from acf.ops.triton import warp_specialised_kernels

    kernel, config = getattr(warp_specialised_kernels, name), WARP_SPECIALISED_PRODUCT[block]
    layout = NVMMASharedLayout(128, 16, rank=2)
    values = constants | {"block": block, "depth": config.depth, "stages": config.stages}
    boxes = boxes | {"x": (256, config.depth)}
    signature = dict.fromkeys(kernel.arg_names, "*i32")
    signature |= dict.fromkeys(("groups", "panels", "sorted_panels"), "i32") | dict.fromkeys(values, "constexpr")
    signature |= {box: f"tensordesc<bf16[{rows}, {cols}],{layout!r}>" for box, (rows, cols) in boxes.items()}
    places = {(kernel.arg_names.index(key),): value for key, value in values.items()}
    aligned = {(i,): [["tt.divisibility", 16]] for i, key in enumerate(kernel.arg_names) if signature[key] == "*i32"}
    return triton.compile(
        GluonASTSource(kernel, signature, places, aligned),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": config.warps, "maxnreg": warp_specialised.REGISTERS},
    )


needs_its_gluon = pytest.mark.skipif(
    not triton.__version__.startswith(warp_specialised.GLUON_VERSIONS), reason="written for another version of Gluon"
)


@needs_its_gluon
@pytest.mark.parametrize(
    ("block", "forward", "has_bias"), [(128, True, True), (64, True, True), (64, False, False), (128, True, False)]
)
def test_the_product_compiles_for_hopper_to_its_widest_matrix_instruction(block: int, forward: bool, has_bias: bool):
    boxes = {"out": (128 if block == 128 else 256, 64), "weight": (block, 64) if forward else (64, block)}
    compiled = compiled_for_hopper("product_warp_specialised_kernel", block, boxes, forward=forward, has_bias=has_bias)
    assert "wgmma.mma_async.sync.aligned.m64n256k16" in compiled.asm["ptx"]
    assert "cp.async.bulk.tensor.2d.shared" in compiled.asm["ptx"]
    assert compiled.metadata.shared <= SHARED_MEMORY_BYTES


@needs_its_gluon
@pytest.mark.parametrize(
    ("block", "activation"), [(128, "gelu"), (64, "gelu"), (128, "silu"), (64, "gelu_tanh"), (128, "relu")]
)
def test_slopes_leave_and_come_back_in_whole_lines_without_changing_threads(block: int, activation: str):
    box = (128 if block == 128 else 256, 64)
    boxes = {"activated": box, "weight": (block, 64)}
    leaving = compiled_for_hopper(
        "activation_warp_specialised_kernel", block, boxes, has_bias=True, activation=activation
    )
    coming = compiled_for_hopper("scaled_warp_specialised_kernel", block, {"out": box, "weight": (64, block)})
    assert "st.global.v4.b32" in leaving.asm["ptx"]
    assert "ld.global.v4.b32" in coming.asm["ptx"]
    for compiled in (leaving, coming):
        assert "shfl.sync" not in compiled.asm["ptx"].replace("shfl.sync.idx", "")  # that one names the warp
        assert compiled.metadata.shared <= SHARED_MEMORY_BYTES


@pytest.mark.parametrize(
    ("capability", "version", "device", "hip", "taken"),
    [
        ((9, 0), "3.6.0", 0, None, True),
        ((8, 0), "3.6.0", 0, None, False),
        ((9, 0), "3.7.0", 0, None, False),
        ((9, 0), "3.6.0", -1, None, False),
        ((9, 0), "3.6.0", 0, "6.4", False),
    ],
    ids=["Hopper", "an older chip", "another Gluon", "no GPU", "a chip of another maker"],
)
def test_only_hopper_with_the_gluon_it_is_written_for_has_it(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    version: str,
    device: int,
    hip: str | None,
    taken: bool,
):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(triton, "__version__", version)
    assert warp_specialised.has_warp_specialisation(device) is taken


def test_small_products_are_not_specialised(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(warp_specialised, "has_warp_specialisation", lambda device: True)
    x, weight = torch.empty(8192, 2048, device="meta"), torch.empty(410, 128, 128, device="meta")
    assert warp_specialised.gains_by_warp_specialisation(x, weight)
    assert not warp_specialised.gains_by_warp_specialisation(x[:1024], weight)


@pytest.mark.parametrize(
    ("blocks", "dtype", "packed"),
    [
        ((128, 128), torch.bfloat16, True),
        ((64, 64), torch.bfloat16, True),
        ((128, 64), torch.bfloat16, False),
        ((32, 32), torch.bfloat16, False),
        ((128, 128), torch.float16, False),
    ],
    ids=["blocks of 128", "blocks of 64", "blocks of two sizes", "small blocks", "float16"],
)
def test_slopes_are_bytes_between_two_specialised_products_in_bfloat16(
    monkeypatch: pytest.MonkeyPatch, blocks: tuple[int, int], dtype: torch.dtype, packed: bool
):
    monkeypatch.setattr(warp_specialised, "has_warp_specialisation", lambda device: True)
    x = torch.empty(8192, 2048, device="meta", dtype=dtype)
    weights = [torch.empty(2**23 // block**2, block, block, device="meta", dtype=dtype) for block in blocks]
    assert warp_specialised.has_packed_slopes(x, *weights) is packed
    assert not warp_specialised.has_packed_slopes(x[:512], *weights)
    with dense_products():
        assert not warp_specialised.has_packed_slopes(x, *weights)


def test_there_is_a_byte_for_every_output_of_whole_tiles_of_tokens():
    x = torch.empty(513, 64)
    assert packed_slopes(x, 256, 128).nbytes == 768 * 256
    assert packed_slopes(x, 256, 64).nbytes == 1024 * 256


def test_a_known_product_gets_a_schedule_of_its_own_at_every_launch():
    launched: list[tuple[Tensor, ...]] = []

    def prepared(*operands: Tensor) -> bool:
        launched.append(operands)
        return True

    known = warp_specialised.PreparedWarpSpecialised(prepared, prepared)
    operands = [torch.zeros(4, dtype=torch.int32) for _ in range(6)]
    assert known(*operands)
    assert known(*operands)
    (offsets, schedule), product, (_, later), _ = launched
    assert offsets is operands[3]
    assert all(given is expected for given, expected in zip(product, [*operands, schedule], strict=True))
    assert schedule.shape == offsets.shape
    assert schedule is not later
