"""The reference: plain NumPy in float32, whatever the operands are stored as. Times are those of this machine."""

from typing import ClassVar

from acf.runtime.backends.backend import Backend, Launched, measured
from acf.runtime.matrices import join_results, split_product
from acf.runtime.numbers import Values
from acf.runtime.timeline import Cost


class Reference(Backend):
    """Dense float32 products; weight gradients of absent blocks are left out."""

    name: ClassVar[str] = "reference"

    def compute(self, launched: Launched) -> tuple[Values, Cost]:
        """Multiply the matrices of the product one after the other."""
        product = launched.program.product
        assert product is not None
        matrices = split_product(product, launched.operands)
        return measured(lambda: join_results(product, [each.a @ each.b for each in matrices]))
