"""The systems that are trained: dense, dense weights under RigL masks, block-sparse kernels, 2:4, and full names.

A kind may have a learning rate, a weight decay and a start scale of its own, as in ``dense/rate=2e-4``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from acf.bench.accuracy.methods import KINDS
from acf.bench.training.variant import Variant
from acf.errors import SparsityError


@dataclass(frozen=True)
class System:
    """A ``variant`` of `acf bench training`; ``masked`` is the sparsity of RigL over dense weights, 0: none."""

    name: str
    variant: Variant
    masked: float = 0.0


def _dense(sparsity: float, block: int) -> System:
    return System("dense", Variant.parse("dense"))


def _masked(sparsity: float, block: int) -> System:
    name = f"masked-{100 * sparsity:g}"
    return System(name, replace(Variant.parse("dense"), name=name), masked=sparsity)


def _blocks(method: str) -> Callable[[float, int], System]:
    def made(sparsity: float, block: int) -> System:
        name = f"{method}-{100 * sparsity:g}/block={block}"
        return System(name, Variant.parse(name))

    return made


def _two_four(sparsity: float, block: int) -> System:
    return System("2:4", replace(Variant.parse("srste-2:4"), name="2:4"))


SYSTEMS: dict[str, Callable[[float, int], System]] = {
    "dense": _dense,
    "masked": _masked,
    "rigl": _blocks("rigl"),
    "static": _blocks("static"),
    "2:4": _two_four,
}
"""Every kind of system. masked: RigL on single weights as usually practised, dense tensors times masks.

rigl and static: block-sparse weights on our kernels, with a topology that moves or stays. 2:4: SR-STE.
"""

WITHOUT_SPARSITY = ("dense", "2:4")
SETTINGS = ("rate", "decay", "start_scale")
"""What a kind may set after slashes; whole methods take all settings of a `Variant`."""


def systems_of(kinds: Sequence[str], sparsities: Sequence[float], block: int) -> list[System]:
    """Every kind at every sparsity; those that have no choice of sparsity once, and so a method by its full name.

    >>> [system.name for system in systems_of(["dense/rate=2e-4", "rigl", "dts-0.5"], [0.5, 0.9], 64)]
    ['dense/rate=2e-4', 'rigl-50/block=64', 'rigl-90/block=64', 'dts-0.5']
    """
    for kind in kinds:
        if kind_of(kind) not in SYSTEMS and not _is_method(kind):
            raise SparsityError(
                f"system {kind!r} is not one of {', '.join(SYSTEMS)}; use one of these names, or a whole method such "
                "as rigl-90/block=32/fraction=0.1 or dts-0.5"
            )
    for sparsity in sparsities:
        if not 0.0 < sparsity < 1.0:
            raise SparsityError(f"sparsity {sparsity:g} is outside (0, 1); give shares such as 0.5,0.75,0.9")
    if not kinds:
        raise SparsityError("--systems names none; write such as dense,rigl")
    return [system for kind in dict.fromkeys(kinds) for system in _systems(kind, sparsities, block)]


def kind_of(name: str) -> str:
    """The kind without its settings: ``dense`` of ``dense/rate=2e-4``."""
    return name.partition("/")[0]


def _systems(name: str, sparsities: Sequence[float], block: int) -> list[System]:
    kind, _, settings = name.partition("/")
    if kind not in SYSTEMS:
        return [System(name, Variant.parse(name))]
    found = [SYSTEMS[kind](sparsity, block) for sparsity in ((0.0,) if kind in WITHOUT_SPARSITY else sparsities)]
    return [_with_settings(system, name, settings) for system in found] if settings else found


def _with_settings(system: System, given: str, settings: str) -> System:
    """``system`` with the ``settings``, which become part of its name."""
    for setting in settings.split("/"):
        if setting.partition("=")[0] not in SETTINGS:
            raise SparsityError(
                f"setting {setting!r} in system {given!r} is not one of {', '.join(SETTINGS)}; write such as "
                "dense/rate=2e-4, or a whole method such as rigl-90/block=32/fraction=0.1"
            )
    parsed, name = Variant.parse(f"dense/{settings}"), f"{system.name}/{settings}"
    variant = replace(system.variant, name=name, **{key: getattr(parsed, key) for key in SETTINGS})
    return replace(system, name=name, variant=variant)


def _is_method(name: str) -> bool:
    """Whether ``name`` is a method of `acf bench accuracy` with its amount, as in dts-0.5."""
    stem, dash, amount = name.partition("/")[0].partition("-")
    return stem in KINDS and bool(dash and amount)
