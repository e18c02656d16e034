"""N:M sparsity as a user asks `acf.sparsify_` for it, and what each method masks."""

from dataclasses import dataclass, replace
from math import isfinite

from acf.errors import SparsityError
from acf.sparse.transposable import require_enumerable

OUTPUTS, INPUTS = 0, 1  # the dimensions of a weight [out, in] or [out, in, kh, kw]


@dataclass(frozen=True)
class NMMethod:
    """The weight dimension whose groups are masked in each pass; None is a dense forward, or the forward's weight."""

    forward_dim: int | None
    backward_dim: int | None
    decay: float = 0.0


NM_METHODS = {
    "bdwp": NMMethod(forward_dim=INPUTS, backward_dim=OUTPUTS),
    "sr-ste": NMMethod(forward_dim=INPUTS, backward_dim=None, decay=2e-4),  # the paper's lambda for SGD
    "sdgp": NMMethod(forward_dim=None, backward_dim=OUTPUTS),
}


@dataclass(frozen=True)
class NMSparsity:
    """Compute with the n greatest of every m consecutive weights while all of them are trained.

    ``method`` says which products are sparse. "bdwp": the forward one, in groups of m inputs, and the input gradient,
    in groups of m outputs, both chosen from the dense weight. "sr-ste": forward and input gradient with the input
    groups, and ``decay * weight`` added to the gradient of weights left out. "sdgp": the input gradient alone, in
    output groups. Groups lie at a fixed output (or input) and kernel tap; the weight gradient is dense.

    ``decay`` is 2e-4 for "sr-ste" and 0 for "bdwp" unless given. It is added in every backward pass and divided by a
    loss scale like the rest of the gradient: train with bfloat16 rather than scaled float16 where it matters.

    ``transposable`` gives forward product and input gradient one mask with n of every m along the inputs and along the
    outputs: of all such m x m patterns, the one with the greatest sum of magnitudes. "bdwp" and "sr-ste" take it, m is
    at most 4 and divides both dimensions. Only so is the input gradient of "sr-ste" itself an N:M product.

    >>> NMSparsity(n=2, m=8).density
    0.25
    """

    n: int
    m: int
    method: str = "bdwp"
    decay: float | None = None
    transposable: bool = False

    def __post_init__(self) -> None:
        if not (type(self.n) is int and type(self.m) is int and 1 <= self.n <= self.m):
            raise SparsityError(
                f"n:m {self.n}:{self.m} is no group pattern: both are integers and n lies in 1 to m; pass such as 2:8"
            )
        if self.method not in NM_METHODS:
            raise SparsityError(f"method {self.method!r} is not one of {', '.join(NM_METHODS)}; use one of these names")
        if self.decay is not None and not (isfinite(self.decay) and self.decay >= 0.0):
            raise SparsityError(f"decay {self.decay} is negative or not finite; pass such as 2e-4, or 0 for none")
        if self.decay and self.masks.forward_dim is None:
            raise SparsityError(
                f"decay {self.decay} needs weights that the forward pass leaves out, {self.method} leaves none out; "
                "pass decay=0, or use sr-ste or bdwp"
            )
        if type(self.transposable) is not bool:
            raise SparsityError(f"transposable {self.transposable!r} is no bool; pass True or False")
        if self.transposable:
            self._check_transposable()

    def _check_transposable(self) -> None:
        require_enumerable(self.n, self.m)
        if NM_METHODS[self.method].forward_dim is None:
            raise SparsityError(
                f"a transposable mask serves two products, and {self.method} masks the input gradient alone; "
                "pass transposable=False, or use sr-ste or bdwp"
            )

    @property
    def masks(self) -> NMMethod:
        """What the method masks in each pass. A transposable mask is the forward's, and the input gradient uses it."""
        method = NM_METHODS[self.method]
        return replace(method, backward_dim=None) if self.transposable else method

    @property
    def density(self) -> float:
        """Share of each group that is kept."""
        return self.n / self.m

    @property
    def decay_factor(self) -> float:
        """The factor of the decay term: the given one, or the method's own."""
        return self.masks.decay if self.decay is None else self.decay

    @property
    def grouped_dims(self) -> tuple[int, ...]:
        """The weight dimensions that ``m`` must divide."""
        if self.transposable:
            return OUTPUTS, INPUTS
        return tuple(dim for dim in (self.masks.backward_dim, self.masks.forward_dim) if dim is not None)
