"""Kernels that the interpreter runs compile for Hopper too, with every epilogue; no GPU is needed for that."""

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed (it comes with CUDA builds of torch)", allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from acf.errors import MissingDependencyError
from acf.ops.activation import ACTIVATIONS
from acf.ops.triton import (
    bias_grad,
    conv_kernels,
    experts_kernels,
    gated_kernels,
    mlp_kernels,
    product_kernels,
    prune,
    skip_zeros,
    statistics_kernels,
    weight_grad_kernels,
)
from acf.ops.triton.version import check_triton

try:
    check_triton(triton.__version__, (9, 0))
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

STRIDED = (3, 2, 2, 1, 1, 1, 1)
INDICES = ("offsets", "slots", "indices", "shared_index", "gathered_index", "block_rows", "block_cols", "token_offsets")


def box(*shape: int) -> str:
    """The type of a tensor descriptor."""
    return f"tensordesc<bf16[{', '.join(map(str, shape))}]>"


def compiled(kernel: Any, types: dict[str, str], num_warps: int = 4, **constants: Any) -> Any:
    """``kernel`` for Hopper; operands are pointers of ``types``, indices int32, and all other parameters integers."""
    types = dict.fromkeys(INDICES, "*i32") | types | dict.fromkeys(constants, "constexpr")
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    plain = [
        i for i, kind in enumerate(signature.values()) if kind != "constexpr" and not kind.startswith("tensordesc")
    ]
    source = ASTSource(kernel, signature, places, {(i,): [["tt.divisibility", 16]] for i in plain})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps, "num_stages": 3})


def test_a_product_adds_a_float32_bias_to_its_accumulator():
    types = {"x": box(256, 64), "weight": box(128, 64), "out": box(256, 128), "bias": "*fp32"}
    constants = {"block": 128, "token_tile": 256, "depth": 64, "pack": 1, "forward": True, "swap": True}
    kernel = product_kernels.product_descriptor_kernel
    assert "wgmma" in compiled(kernel, types, 8, **constants, has_bias=True, precision="tf32").asm["ptx"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_product_has_every_activation_in_its_epilogue(activation: str):
    types = {"x": box(128, 64), "weight": box(128, 64), "activated": box(128, 128), "slope": box(128, 128)}
    constants = {"block": 128, "token_tile": 128, "depth": 64, "swap": False, "has_bias": True, "precision": "tf32"}
    kernel = mlp_kernels.product_activation_kernel
    assert "wgmma" in compiled(kernel, types | {"bias": "*fp32"}, activation=activation, **constants).asm["ptx"]


def test_a_gated_pair_holds_both_sums_in_registers():
    tiles = dict.fromkeys(("hidden", "gate_factor", "up_factor"), box(128, 32))
    weights = {"gate_weight": box(32, 32), "up_weight": box(32, 32), "gate_bias": "*fp32", "up_bias": "*fp32"}
    indices = dict.fromkeys((f"{layer}_{name}" for layer in ("gate", "up") for name in INDICES[:3]), "*i32")
    constants = {"block": 32, "token_tile": 128, "depth": 32, "swap": False, "activation": "silu", "factors": True}
    biases = {"has_gate_bias": True, "has_up_bias": True, "precision": "tf32"}
    types = {"x": box(128, 32), **weights, **tiles, **indices}
    assert "wgmma" in compiled(gated_kernels.gated_kernel, types, **constants, **biases).asm["ptx"]


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_weight_gradient_pipelines_its_loads_with_a_bias_gradient_too(has_bias: bool):
    types = {"shared": "*bf16", "gathered": "*bf16", "out": "*fp32", "bias": "*fp32"}
    constants = {"block": 128, "depth": 64, "pack": 2, "owner_span": 32, "shared_is_input": False, "wide": True}
    kernel = weight_grad_kernels.weight_grad_gather_kernel
    result = compiled(kernel, types, 8, **constants, norms=False, has_bias=has_bias, precision="tf32")
    assert result.asm["ptx"].count("m64n256k16") == (8 if has_bias else 4)  # a loop with sums and one without
    assert result.metadata.shared == 3 * 64 * (128 + 256) * 2  # three stages of both operands


@pytest.mark.parametrize("forward", [True, False])
def test_a_product_of_experts_stores_whole_tiles_by_descriptor_and_others_by_pointer(forward: bool):
    weight = box(64, 32) if forward else box(32, 64)
    types = {"x": box(256, 32), "weight": weight, "out_tiles": box(256, 64), "out": "*bf16"}
    constants = {"block": 64, "token_tile": 256, "depth": 32, "expert_span": 16, "forward": forward, "swap": True}
    ptx = compiled(experts_kernels.experts_product_kernel, types, **constants, precision="tf32").asm["ptx"]
    assert "wgmma" in ptx
    assert "cp.async.bulk.tensor.2d.global.shared" in ptx
    assert "st.global" in ptx


@pytest.mark.parametrize("norms", [False, True])
def test_a_weight_gradient_of_experts_pipelines_its_loads(norms: bool):
    types = {"shared": "*bf16", "gathered": "*bf16", "out": "*fp32"}
    constants = {"block": 128, "depth": 64, "pack": 2, "owner_span": 32, "shared_is_input": True, "wide": True}
    kernel = experts_kernels.experts_weight_grad_kernel
    result = compiled(kernel, types, 8, **constants, norms=norms, precision="tf32")
    assert result.asm["ptx"].count("m64n256k16") == 4
    assert result.metadata.shared >= 3 * 64 * (128 + 256) * 2  # three stages of both operands


def test_convolutions_take_their_geometry_as_one_constant():
    types = {"source": "*bf16", "weight": "*bf16", "out": "*bf16", "bias": "*fp32"}
    constants = {"geometry": STRIDED, "block": 64, "depth": 64, "pack": 1, "precision": "tf32"}
    product = conv_kernels.conv_product_kernel
    epilogue = {"token_tile": 128, "forward": True, "swap": False, "has_bias": True}
    assert "wgmma" in compiled(product, types, **constants, **epilogue).asm["ptx"]
    types = {"x": "*bf16", "output_grad": "*bf16", "out": "*bf16"}
    gradient = conv_kernels.conv_weight_grad_gather_kernel
    assert "wgmma" in compiled(gradient, types, **constants, owner_span=1, wide=True, norms=False).asm["ptx"]


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "input gradient"])
def test_a_strided_convolution_loads_and_stores_boxes_of_one_phase(forward: bool):
    inputs, outputs = (lambda depth: box(2, 8, 1, 8, depth)), (lambda depth: box(2, 8, 8, depth))
    source, out = (inputs(64), outputs(64)) if forward else (outputs(64), inputs(64))
    types = {"source": source, "weight": box(64, 64), "out": out, "bias": "*fp32"}
    shape = {"geometry": STRIDED, "block": 64, "images": 2, "height": 8, "width": 8, "depth": 64}
    way = {"forward": forward, "swap": True, "has_bias": False, "precision": "tf32"}
    ptx = compiled(conv_kernels.conv_product_descriptor_kernel, types, **shape, **way).asm["ptx"]
    tiles = {dimensions: f"cp.async.bulk.tensor.{dimensions}d" in ptx for dimensions in (4, 5)}
    assert "wgmma" in ptx
    assert tiles == {4: True, 5: True}


def test_the_weight_gradient_of_a_strided_convolution_loads_boxes_of_one_phase():
    types = {"output_grad": box(1, 8, 8, 64), "x": box(1, 8, 1, 8, 64), "out": "*fp32"}
    shape = {"geometry": STRIDED, "block": 64, "images": 1, "height": 8, "width": 8, "precision": "tf32"}
    ptx = compiled(conv_kernels.conv_weight_grad_descriptor_kernel, types, **shape).asm["ptx"]
    assert "wgmma" in ptx
    assert "cp.async.bulk.tensor.5d" in ptx


@pytest.mark.parametrize("whole", [True, False], ids=["whole boxes", "edges"])
def test_a_convolution_takes_the_statistics_of_its_output_in_the_epilogue(whole: bool):
    types = {"source": box(2, 8, 1, 8, 64), "weight": box(64, 64), "out": box(2, 8, 8, 64)}
    types |= {"bias": "*fp32", "partials": "*fp32"}
    shape = {"geometry": STRIDED, "block": 64, "images": 2, "height": 8, "width": 8, "depth": 64}
    way = {"swap": True, "has_bias": False, "whole": whole, "precision": "tf32"}
    ptx = compiled(statistics_kernels.conv_statistics_kernel, types, **shape, **way).asm["ptx"]
    assert "wgmma" in ptx
    assert "cp.async.bulk.tensor.4d" in ptx
    assert "st.global" in ptx


def test_statistics_are_combined_for_hopper():
    types = dict.fromkeys(("partials", "mean", "variance"), "*fp32")
    shape = {"images": 2, "height": 8, "width": 8, "rows": 256, "channel_tile": 8}
    assert compiled(statistics_kernels.combine_statistics_kernel, types, 8, **shape).asm["ptx"]
    tile = {"tile": 128, "channel_tile": 64, "whole": False}
    ptx = compiled(statistics_kernels.tile_statistics_kernel, {"source": "*bf16", "partials": "*fp32"}, **tile).asm[
        "ptx"
    ]
    assert "ld.global.v4.b32" in ptx


def test_column_sums_load_sixteen_bytes_at_a_time():
    types = {"source": "*bf16", "out": "*fp32"}
    assert "ld.global.v4.b32" in compiled(bias_grad.sum_rows_kernel, types, row_tile=64, column_tile=128).asm["ptx"]


@pytest.mark.parametrize(("groups", "transposed"), [("inputs", False), ("outputs", True), ("tiles", True)])
def test_a_weight_is_pruned_in_registers(groups: str, transposed: bool):
    constants = {"groups": groups, "left_out": False, "transposed": transposed, "tile_rows": 32, "tile_cols": 64}
    ptx = compiled(prune.prune_kernel, {"weight": "*fp32", "out": "*bf16"}, **constants).asm["ptx"]
    assert ".local" not in ptx  # nothing spilled


def test_the_zero_skipping_product_uses_tensor_cores() -> None:
    types = {"left": "*bf16", "right": "*bf16", "out": "*bf16", "columns": "*i32", "counts": "*i32"}
    constants = {"row_tile": 64, "column_tile": 128, "depth_tile": 32}
    assert "mma" in compiled(skip_zeros.listed_product_kernel, types, **constants).asm["ptx"]
    marked = {"source": "*bf16", "marks": "*i32", "columns": "*i32", "counts": "*i32"}
    compiled(skip_zeros.mark_tiles_kernel, marked, row_tile=64, depth_tile=32)
    compiled(skip_zeros.list_tiles_kernel, marked, padded_tiles=128)
