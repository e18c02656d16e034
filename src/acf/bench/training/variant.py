"""What is trained in one run of the benchmark: a method with its settings, parsed from one line of text."""

from dataclasses import dataclass

from acf.bench.accuracy.methods import Recipe, recipe_of
from acf.errors import SparsityError

RUN_SETTINGS = ("width", "rate", "block", "dense_layers", "speedup", "blocks")


@dataclass(frozen=True)
class Variant:
    """One column of the comparison.

    ``name`` is a method of `acf.bench.accuracy.methods` with settings after slashes: ``dense``, ``dense/width=64``,
    ``static-90/block=64/distribution=erk``, ``rigl-90/block=64/moves=25``. ``width`` and ``rate`` (the peak learning
    rate) override those of the task; ``block`` is the side of a block; ``dense_layers`` names parts of layer names,
    separated by ``+``, that stay dense. With ``distribution=cost`` the densities come from `acf.plan`, for the
    ``speedup`` of the whole step that is asked for, if one is, and with ``blocks=32+64`` the block of each layer too.

    >>> Variant.parse("static-90/block=64/rate=0.4").rate
    0.4
    """

    name: str
    recipe: Recipe
    width: int | None = None
    rate: float | None = None
    block: int = 64
    dense_layers: tuple[str, ...] = ()
    speedup: float | None = None
    blocks: tuple[int, ...] = ()

    @classmethod
    def parse(cls, name: str) -> "Variant":
        """Read a variant's name; refuse one that means none."""
        stem, *settings = name.split("/")
        own: dict[str, str] = {}
        method = [stem]
        for setting in settings:
            key, _, value = setting.partition("=")
            if key in RUN_SETTINGS:
                own[key] = value
            else:
                method.append(setting)
        block = int(_number(own.get("block", "64"), name))
        return cls(
            name=name,
            recipe=recipe_of("/".join(method), block),
            width=int(_number(own["width"], name)) if "width" in own else None,
            rate=_number(own["rate"], name) if "rate" in own else None,
            block=block,
            dense_layers=tuple(own["dense_layers"].split("+")) if "dense_layers" in own else (),
            speedup=_number(own["speedup"], name) if "speedup" in own else None,
            blocks=tuple(int(_number(side, name)) for side in own["blocks"].split("+")) if "blocks" in own else (),
        )

    @property
    def is_dense(self) -> bool:
        """Whether no weight is removed."""
        return self.recipe.sparsity is None


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SparsityError(f"{text!r} in variant {name!r} is not a number; write such as width=128") from None
