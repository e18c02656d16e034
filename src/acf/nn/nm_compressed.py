"""The weight of a 2:4 linear layer in the compressed form that sparse tensor cores multiply by.

It is compressed once after every change of the weight, like the masks of `acf.nn.nm_masks`; compiled and captured
graphs compress it at every run.
"""

from typing import Any

import torch
from torch import Tensor, nn

from acf.errors import require_kind
from acf.nn.nm_masks import WeightState, may_keep
from acf.nn.nm_spec import NMSparsity
from acf.ops.differentiate import is_transformed
from acf.ops.semi_structured import (
    DENSE,
    INPUTS,
    OUTPUTS,
    TILES,
    Groups,
    Operands,
    Product,
    describe_layer,
    library_for,
    make_operands,
    semi_structured_linear,
)

_GROUPS = {"bdwp": Groups(INPUTS, OUTPUTS), "sr-ste": Groups(INPUTS, DENSE), "sdgp": Groups(DENSE, OUTPUTS)}
"""The groups of each method's products, without a transposable mask."""

_SPARSE_PASSES = {
    (True, True): "the forward product and the input gradient",
    (True, False): "the forward product (the input gradient is dense: its weight is not 2:4 along the outputs)",
    (False, True): "the input gradient (the forward product is dense)",
}


class CompressedWeight:
    """Chooses the library of a layer's products, and keeps the operands that were made of its weight."""

    def __init__(self, spec: NMSparsity) -> None:
        self.spec = spec
        self.groups = Groups(TILES, TILES) if spec.transposable else _GROUPS[spec.method]
        self._operands: Operands | None = None
        self._made_for: tuple[WeightState, torch.dtype, str] | None = None

    def library_for(self, x: Tensor, weight: Tensor) -> str:
        """The library that multiplies ``x`` by ``weight``, or an empty string where masked dense products do it.

        Transforms of `torch.func`, forward mode and tensor subclasses such as DTensor take the dense products.
        """
        if (self.spec.n, self.spec.m) != (2, 4) or type(weight) not in (Tensor, nn.Parameter):
            return ""
        if not torch.compiler.is_compiling() and is_transformed():
            return ""
        require_kind(x, Tensor, "the input", "pass a torch.Tensor")
        dtype = _product_dtype(x, weight)
        if dtype is None:
            return ""
        return library_for(x.device, dtype, (weight.shape[0], weight.shape[1]))

    def multiply(self, x: Tensor, weight: Tensor, library: str) -> Tensor:
        """``x [..., in]``, in the dtype of the product, times the compressed ``weight [out, in]``."""
        product = Product(self.groups, library, self.spec.decay_factor)
        return semi_structured_linear(x, weight, self._operands_of(weight, product, x.dtype), product)

    def forget(self) -> None:
        """Drop the operands: the next product makes them anew."""
        self._operands = self._made_for = None

    def describe(self, weight: Tensor) -> str:
        """How products with ``weight`` are computed on its device in bfloat16 or float16, in one phrase."""
        if (self.spec.n, self.spec.m) != (2, 4):
            return f"dense products: sparse tensor cores take 2:4, not {self.spec.n}:{self.spec.m}"
        library, reason = describe_layer(weight.device, (weight.shape[0], weight.shape[1]))
        if not library:
            return f"dense products: {reason}"
        passes = _SPARSE_PASSES[self.groups.forward != DENSE, self.groups.backward != DENSE]
        return f"2:4 products by {library} in {passes}, for float16 and bfloat16"

    def _operands_of(self, weight: Tensor, product: Product, dtype: torch.dtype) -> Operands:
        if not may_keep(weight):
            return make_operands(weight, product, dtype)
        assert isinstance(weight, nn.Parameter)
        made_for = self._made_for
        if self._operands is None or made_for is None or not _holds(made_for, weight, dtype, product.library):
            with torch.inference_mode(False):  # operands made while evaluating serve the next training step too
                self._operands = make_operands(weight, product, dtype)
            self._made_for = WeightState.of(weight), dtype, product.library
        return self._operands

    def __getstate__(self) -> dict[str, Any]:
        """Without the operands: a copy makes its own."""
        return self.__dict__ | {"_operands": None, "_made_for": None}


def _holds(made_for: tuple[WeightState, torch.dtype, str], weight: nn.Parameter, *form: object) -> bool:
    return made_for[0].holds_for(weight) and made_for[1:] == form


def _product_dtype(x: Tensor, weight: Tensor) -> torch.dtype | None:
    """The dtype that torch's own layer would multiply in; None where it would refuse."""
    if x.device != weight.device:
        return None
    device_type = x.device.type
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        both_cast = torch.float64 not in (x.dtype, weight.dtype)
        return torch.get_autocast_dtype(device_type) if both_cast else None
    return x.dtype if x.dtype == weight.dtype else None
