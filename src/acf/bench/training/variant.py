"""What is trained in one run of the benchmark: a method with its settings, parsed from one line of text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite

from acf.bench.accuracy.methods import Recipe, recipe_of
from acf.bench.training.task import TaskSpec
from acf.errors import SparsityError
from acf.nn.plan import MOST_SPEEDUP, PlanOptions

PLAN_PREFIX = "plan_"


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number


MOST_RATE = 1e6
"""Of a learning rate and a weight decay: no run has one near it, and float32, which holds them, has room for it."""


def _rate(text: str) -> float:
    rate = _number(text)
    if not 0 <= rate <= MOST_RATE:
        raise ValueError(f"{text} is below 0 or above {MOST_RATE:g}")
    return rate


def _speedup(text: str) -> float:
    speedup = _number(text)
    if not 1 <= speedup <= MOST_SPEEDUP:
        raise ValueError(f"{text} is below 1 or above {MOST_SPEEDUP:g}")
    return speedup


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def _parts(text: str) -> tuple[str, ...]:
    return tuple(text.split("+"))


def _sides(text: str) -> tuple[int, ...]:
    return tuple(_whole(side) for side in text.split("+"))


RUN_SETTINGS: dict[str, Callable[[str], object]] = {
    "width": _whole,
    "layers": _whole,
    "attention_width": _whole,
    "embedding_width": _whole,
    "head_width": _whole,
    "experts": _whole,
    "batch": _whole,
    "rate": _rate,
    "decay": _rate,
    "start_scale": _number,
    "block": _whole,
    "dense_layers": _parts,
    "speedup": _speedup,
}
"""Settings of a run, and how the text of each is read; all other settings are the method's."""

OF_A_GPT = ("layers", "attention_width", "embedding_width", "head_width", "experts")
"""Settings of a run that no other network has."""

PLAN_SETTINGS: dict[str, Callable[[str], object]] = {"int": _count, "float": _number, "str": str, "tuple": _sides}
"""How a field of `PlanOptions` is read, by its type."""


@dataclass(frozen=True)
class Variant:
    """One row of the comparison.

    ``name`` is a method of `acf.bench.accuracy.methods` with settings after slashes: ``dense``, ``dense/width=64``,
    ``static-90/block=64/distribution=erk``, ``rigl-90/block=64/moves=25``. ``width``, ``batch``, ``rate`` (the peak
    learning rate), ``decay`` (weight decay), ``start_scale`` (of the last batch norm of residual blocks) and a GPT's
    ``layers``, ``attention_width``, ``embedding_width``, ``head_width`` and ``experts`` override those of the task;
    ``block`` is the side of a block; ``dense_layers`` names parts of layer names, separated by ``+``, that stay dense.
    With ``distribution=cost`` the densities come from `acf.plan`, for the ``speedup`` of the whole step that is asked
    for, if one is; ``plan_rounds=9``, ``plan_blocks=32+64`` and the like set fields of `PlanOptions`.

    >>> Variant.parse("static-90/block=64/rate=0.4").rate
    0.4
    """

    name: str
    recipe: Recipe
    width: int | None = None
    layers: int | None = None
    attention_width: int | None = None
    embedding_width: int | None = None
    head_width: int | None = None
    experts: int | None = None
    batch: int | None = None
    rate: float | None = None
    decay: float | None = None
    start_scale: float | None = None
    block: int = 64
    dense_layers: tuple[str, ...] = ()
    speedup: float | None = None
    plan: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str) -> "Variant":
        """Read a variant's name; refuse one that means none."""
        stem, *settings = name.split("/")
        own: dict[str, object] = {}
        plan: dict[str, object] = {}
        method = [stem]
        for setting in settings:
            key, _, text = setting.partition("=")
            if key in RUN_SETTINGS:
                own[key] = _read(RUN_SETTINGS[key], key, text, name)
            elif key.startswith(PLAN_PREFIX):
                plan[key.removeprefix(PLAN_PREFIX)] = _plan_setting(key, text, name)
            else:
                method.append(setting)
        PlanOptions(**plan)  # type: ignore[arg-type]  # refuse bad settings now, not when the variant's turn comes
        recipe = recipe_of("/".join(method), int(str(own.get("block", cls.block))))
        return cls(name=name, recipe=recipe, plan=plan, **own)  # type: ignore[arg-type]

    @property
    def is_dense(self) -> bool:
        """Whether no weight is removed."""
        return self.recipe.sparsity is None

    def sizes(self, spec: TaskSpec) -> TaskSpec:
        """The sizes of ``spec`` with those that this variant overrides."""
        for name in OF_A_GPT:
            if getattr(self, name) is not None and not spec.context:
                raise SparsityError(
                    f"{name} in variant {self.name!r} is a GPT's, and {spec.name} has none; leave it out"
                )
        if self.start_scale is not None and spec.start_scale is None:
            raise SparsityError(
                f"start_scale in variant {self.name!r} is for acf bench resnet50, not {spec.name}; leave it out"
            )
        given = {
            "width": self.width,
            "batch": self.batch,
            **{name: getattr(self, name) for name in OF_A_GPT},
            "rate": self.rate,
            "weight_decay": self.decay,
            "start_scale": self.start_scale,
        }
        return replace(spec, **{key: value for key, value in given.items() if value is not None})


def _plan_setting(key: str, text: str, name: str) -> object:
    types = {each.name: str(getattr(each.type, "__name__", each.type)) for each in fields(PlanOptions)}
    known = {each: PLAN_SETTINGS[kind] for each, kind in types.items() if kind in PLAN_SETTINGS}
    wanted = key.removeprefix(PLAN_PREFIX)
    if wanted not in known:
        names = ", ".join(f"{PLAN_PREFIX}{each}" for each in known)
        raise SparsityError(f"setting {key!r} in variant {name!r} is not known; use {names}")
    return _read(known[wanted], key, text, name)


def _read(reader: Callable[[str], object], key: str, text: str, name: str) -> object:
    try:
        return reader(text)
    except ValueError:
        raise SparsityError(
            f"{key}={text} in variant {name!r} is not a number that {key} can be; write such as width=128 or rate=0.1"
        ) from None
