"""Refusing operands of products that no kernel could read."""

from torch import Tensor

from acf.errors import ArgumentError, SparsityError, require_kind


def check_operands(first: Tensor, second: Tensor, first_dims: int, second_dims: int) -> None:
    """Refuse what is no tensor, has fewer dimensions than it must have, or integers, to which a weight would be cast.

    Sizes are the kernels' to compare.
    """
    are_tensors = isinstance(first, Tensor) and isinstance(second, Tensor)
    if are_tensors and first.dim() >= first_dims and second.dim() >= second_dims:
        check_fractions(first)
        return
    for each in (first, second):
        require_kind(each, Tensor, "an operand", "pass a torch.Tensor")
    raise SparsityError(
        f"operands of shapes {list(first.shape)} and {list(second.shape)} cannot be multiplied: they need {first_dims} "
        f"and {second_dims} dimensions; pass [..., in] to a linear layer, [batch, in, h, w] to a convolution, and "
        "packed weights as [blocks, height, width]"
    )


def check_fractions(operand: Tensor) -> None:
    """Refuse integers, to which a weight would be cast."""
    if not (operand.is_floating_point() or operand.is_complex()):
        raise ArgumentError(
            f"an operand is {str(operand.dtype).removeprefix('torch.')}, and a weight that is cast to it loses its "
            "fractions; pass floating-point values, for example x.float()"
        )


def check_bias(bias: Tensor | None) -> None:
    """Refuse a bias that is no vector; its length is the kernels' to compare."""
    if bias is None:
        return
    require_kind(bias, Tensor, "bias", "pass a torch.Tensor, or None")
    if bias.dim() != 1:
        raise ArgumentError(f"bias has shape {list(bias.shape)}; pass one value for each output channel")
