"""Products that run as programs: torch's ``mm``, ``addmm`` and 2-D convolutions, and the block-sparse ops of `acf`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from acf.ops import Conv2dGeometry
from acf.ops.observe import observed
from acf.runtime import Product, WeightBlocks
from acf.sparse import BlockTopology, conv_weight_to_matrix, matrix_to_conv_weight
from acf.torch_device.errors import TorchDeviceError
from acf.torch_device.fallback import run_on_host
from acf.torch_device.memory import NAME, host_view, is_on_device, to_device
from acf.torch_device.session import SESSION
from acf.torch_device.tensors import DISPATCH_KEY
from acf.trace.op import TracedConv

aten: Any = torch.ops.aten

DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
"""Dtypes of tensors whose products run as programs, and the format of the result; operands are rounded to bf16."""


def _run(product: Product, a: Tensor, b: Tensor) -> Tensor:
    """The result of a product over two tensors of host memory, on the device."""
    return to_device(SESSION.engine.run_resident(product, a, b))


def _has_program(*tensors: Tensor) -> bool:
    """Whether operands can be multiplied by a program; those that are not all on the device are refused."""
    elsewhere = [tensor.device for tensor in tensors if not is_on_device(tensor)]
    if elsewhere:
        raise TorchDeviceError(f"one operand is on {elsewhere[0]} and another on {NAME}; move both to one of them")
    return all(tensor.dtype in DTYPES and tensor.numel() for tensor in tensors)


def _mm(a: Tensor, b: Tensor) -> Tensor:
    """``a [m, k] @ b [k, n]``: the forward pass of a linear layer with weight ``b^T``."""
    fits = a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0] and a.dtype == b.dtype
    if not fits or not _has_program(a, b):  # the host refuses what does not fit
        result: Tensor = run_on_host(aten.mm.default, a, b)
        return result
    columns, depth = b.shape[1], b.shape[0]
    product = Product(
        phase="forward",
        rows=a.shape[0],
        weight=WeightBlocks.dense(columns, depth),
        result_dtype=DTYPES[a.dtype],
        name="mm",
    )
    return _run(product, host_view(a), host_view(b).t())


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * bias + alpha * (a @ b)``; the sum is an op of its own."""
    product = _mm(a, b)
    product = product if alpha == 1 else product * alpha
    return product + (bias if beta == 1 else bias * beta)


def _is_conv2d(x: Tensor, weight: Tensor, transposed: bool, groups: int) -> bool:
    return _has_program(x, weight) and x.dim() == 4 and not transposed and groups == 1


def _conv_product(phase: str, x_shape: Sequence[int], weight: Tensor, pairs: Sequence[Sequence[int]]) -> Product:
    """One pass of a dense convolution; ``pairs``: stride, padding, dilation."""
    out_channels, in_channels, *kernel = weight.shape
    stride, padding, dilation = ((pair[0], pair[-1]) for pair in pairs)
    conv = TracedConv((kernel[0], kernel[1]), stride, padding, dilation, input_size=(int(x_shape[2]), int(x_shape[3])))
    return Product(
        phase=phase,
        rows=int(x_shape[0]),
        weight=WeightBlocks.dense(out_channels, kernel[0] * kernel[1] * in_channels),
        conv=conv,
        result_dtype=DTYPES[weight.dtype],
        name="convolution",
    )


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    """The arguments of ``aten::convolution_overrideable``."""
    stride, padding, dilation, transposed, _, groups = rest
    if not _is_conv2d(x, weight, transposed, groups):
        result: Tensor = run_on_host(aten.convolution.default, x, weight, bias, *rest)
        return result
    product = _conv_product("forward", x.shape, weight, (stride, padding, dilation))
    y = _run(product, host_view(x), conv_weight_to_matrix(host_view(weight)))
    return y if bias is None else y + bias[:, None, None]


def _convolution_backward(output_grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    """The arguments of ``aten::convolution_backward_overrideable``; gradients of input, weight and bias."""
    stride, padding, dilation, transposed, output_padding, groups, mask = rest
    if not _is_conv2d(x, weight, transposed, groups):
        bias_sizes = [output_grad.shape[1]]
        geometry = (stride, padding, dilation, transposed, output_padding, groups)
        host: tuple[Tensor | None, ...] = run_on_host(
            aten.convolution_backward.default, output_grad, x, weight, bias_sizes, *geometry, mask
        )
        return host
    pairs, gradient = (stride, padding, dilation), host_view(output_grad)
    x_grad = weight_grad = bias_grad = None
    if mask[0]:
        product = _conv_product("input_grad", x.shape, weight, pairs)
        x_grad = _run(product, gradient, conv_weight_to_matrix(host_view(weight)))
    if mask[1]:
        product = _conv_product("weight_grad", x.shape, weight, pairs)
        packed = SESSION.engine.run_resident(product, gradient, host_view(x))
        weight_grad = to_device(matrix_to_conv_weight(packed[0], (weight.shape[2], weight.shape[3])))
    if mask[2]:
        bias_grad = output_grad.sum((0, 2, 3))
    return x_grad, weight_grad, bias_grad


def _blocks(topology: Sequence[Tensor], block_shape: tuple[int, int]) -> WeightBlocks:
    """The blocks of a weight from the topology's six tensors, as the ops of `acf` pass them."""
    indices = BlockTopology(*(host_view(each) for each in topology))
    rows = (indices.row_offsets.numel() - 1) * block_shape[0]
    columns = (indices.col_offsets.numel() - 1) * block_shape[1]
    return WeightBlocks(rows, columns, block_shape, indices.block_rows.numpy(), indices.block_cols.numpy())


def _traced(geometry: Sequence[Any], input_size: Sequence[int]) -> TracedConv:
    pairs = Conv2dGeometry.from_lists(*geometry)
    return TracedConv(
        pairs.kernel_size,
        pairs.stride,
        pairs.padding,
        pairs.dilation,
        input_size=(int(input_size[-2]), int(input_size[-1])),
    )


def _sparse_forward(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    """``block_linear_forward`` and ``block_conv2d_forward``: the topology, and of a convolution its geometry."""
    conv = _traced(rest[6:], x.shape) if rest[6:] else None
    y = _run(_sparse_product("forward", x.shape[0], weight, rest[:6], conv), host_view(x), host_view(weight))
    if bias is None:
        return y
    return y + bias.to(y.dtype).reshape(-1, *[1] * (y.dim() - 2))


def _sparse_input_grad(output_grad: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """``block_linear_input_grad`` and ``block_conv2d_input_grad``, which has the input's size after the topology."""
    conv = _traced(rest[7:], rest[6]) if rest[6:] else None
    product = _sparse_product("input_grad", output_grad.shape[0], weight, rest[:6], conv)
    return _run(product, host_view(output_grad), host_view(weight))


def _sparse_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """``block_linear_weight_grad`` and ``block_conv2d_weight_grad``; the last argument is the gradient's dtype."""
    *topology, dtype = (*rest[:6], rest[-1])
    conv = _traced(rest[6:-1], x.shape) if len(rest) > 7 else None
    taps = conv.taps if conv else 1
    block_shape = (
        output_grad.shape[1] // (topology[2].numel() - 1),
        x.shape[1] * taps // (topology[4].numel() - 1),
    )
    product = Product(
        phase="weight_grad",
        rows=x.shape[0],
        weight=_blocks(topology, block_shape),
        conv=conv,
        result_dtype="fp32",
        name="sparse",
    )
    return _run(product, host_view(output_grad), host_view(x)).to(dtype)


def _sparse_product(
    phase: str, rows: int, weight: Tensor, topology: Sequence[Tensor], conv: TracedConv | None
) -> Product:
    return Product(
        phase=phase,
        rows=rows,
        weight=_blocks(topology, (weight.shape[1], weight.shape[2])),
        conv=conv,
        result_dtype=DTYPES[weight.dtype],
        name="sparse",
    )


KERNELS: dict[str, Callable[..., Any]] = {
    "mm": _mm,
    "addmm": _addmm,
    "convolution_overrideable": _convolution,
    "convolution_backward_overrideable": _convolution_backward,
}
"""Kernels of torch's ops, by name in aten."""

SPARSE_KERNELS: dict[str, Callable[..., Any]] = {
    "block_linear_forward": _sparse_forward,
    "block_linear_input_grad": _sparse_input_grad,
    "block_linear_weight_grad": observed(_sparse_weight_grad),
    "block_conv2d_forward": _sparse_forward,
    "block_conv2d_input_grad": _sparse_input_grad,
    "block_conv2d_weight_grad": observed(_sparse_weight_grad),
}
"""Kernels of the ops of `acf.ops`, by name."""


def register_products(library: Any) -> Any:
    """Register the kernels: torch's in ``library``, which implements aten, our own ops' in the library returned."""
    for name, kernel in KERNELS.items():
        library.impl(name, kernel, DISPATCH_KEY)
    own: Any = torch.library.Library("acf", "IMPL")  # type: ignore[no-untyped-call]
    for name, kernel in SPARSE_KERNELS.items():
        own.impl(name, kernel, DISPATCH_KEY)
    return own
