"""The methods that are compared, by name: ``dense``, ``dst-90``, ``bdwp-2:8``, ``dts-0.5``, ...

A name is a kind and, after a dash, its amount: the block sparsity in per cent, an n:m pattern, or the gradient
sparsity as a fraction. Settings may follow, each after a slash: ``dst-90/init=dense/fraction=0.1``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import acf
from acf.errors import SparsityError
from acf.masks import TopologyPolicy

Sparsity = acf.BlockSparsity | acf.NMSparsity | acf.GradientSparsity
Settings = Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    """What `acf.sparsify_` gets, and for block-sparse training the policy as a function of total steps and seed."""

    sparsity: Sparsity | None = None
    policy: Callable[[int, int], TopologyPolicy] | None = None


@dataclass(frozen=True)
class BlockMethod:
    """A policy over blocks and its default settings."""

    policy: type[TopologyPolicy]
    defaults: Mapping[str, str]

    def recipe(self, amount: str, settings: Settings, block: int) -> Recipe:
        """``amount`` is the sparsity in per cent."""
        chosen = {"distribution": "erk", **self.defaults, **settings}
        sparsity = acf.BlockSparsity(
            sparsity=_number(amount) / 100,
            block=block,
            distribution=chosen.pop("distribution"),
            init=chosen.pop("init", "sparse"),
            rescale=False,
            topology=chosen.pop("topology", "norm"),
        )
        moves = int(_number(chosen.pop("moves", "10")))
        return Recipe(sparsity, partial(_policy, self.policy, moves, chosen))


def _policy(kind: type[TopologyPolicy], moves: int, settings: Settings, total_steps: int, seed: int) -> TopologyPolicy:
    """A policy of that kind with ``moves`` topology updates over ``total_steps``."""
    types = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    _refuse_others(settings, tuple(types))
    values: dict[str, Any] = {name: text if types[name] is str else _number(text) for name, text in settings.items()}
    values |= {name: int(value) for name, value in values.items() if types[name] is int}
    if "total_steps" in types:
        values = {"total_steps": total_steps, "every": max(1, total_steps // moves)} | values
    if "seed" in types:
        values["seed"] = seed
    return kind(**values)


def _dense_recipe(amount: str, settings: Settings, block: int) -> Recipe:
    _refuse_others(settings, ())
    return Recipe()


def _nm_recipe(method: str, amount: str, settings: Settings, block: int) -> Recipe:
    _refuse_others(settings, ())
    n, _, m = amount.partition(":")
    return Recipe(acf.NMSparsity(int(_number(n)), int(_number(m)), method))


def _gradient_recipe(method: str, amount: str, settings: Settings, block: int) -> Recipe:
    """Gradients are sparsified at layers' inputs unless ``at=output`` is set: all networks have batch normalisation."""
    _refuse_others(settings, ("at",))
    return Recipe(acf.GradientSparsity(_number(amount), method, at=settings.get("at", "input")))


# Chosen by search, prune early and move few blocks: docs/results/accuracy.md has what else was tried.
_DST = {
    "init": "dense",
    "start_at": "0.1",
    "shrink_until": "0.8",
    "stop_at": "0.8",
    "fraction": "0.02",
    "moves": "25",
}

KINDS: dict[str, Callable[[str, Settings, int], Recipe]] = {
    "dense": _dense_recipe,
    "dst": BlockMethod(acf.BlockDST, _DST).recipe,
    "rigl": BlockMethod(acf.BlockDST, {"moves": "30"}).recipe,  # the same policy with its defaults, from a sparse start
    "set": BlockMethod(acf.SET, {"moves": "30"}).recipe,
    "static": BlockMethod(acf.StaticTopology, {}).recipe,
    "gradual": BlockMethod(acf.GradualPruning, {"init": "dense", "stop_at": "0.5", "moves": "20"}).recipe,
    "bdwp": partial(_nm_recipe, "bdwp"),
    "srste": partial(_nm_recipe, "sr-ste"),
    "sdgp": partial(_nm_recipe, "sdgp"),
    "dts": partial(_gradient_recipe, "dts"),
    "topk": partial(_gradient_recipe, "top-k"),
    "gaussian": partial(_gradient_recipe, "gaussian"),
    "random": partial(_gradient_recipe, "random"),
}
"""Every kind of method, and the function that makes its recipe from amount, settings and block size."""


def recipe_of(name: str, block: int = 16) -> Recipe:
    """The recipe of a method; raises `SparsityError` for an unknown name or setting.

    >>> recipe_of("dst-90").sparsity.sparsity
    0.9
    """
    stem, *settings = name.split("/")
    kind, _, amount = stem.partition("-")
    if kind not in KINDS:
        raise SparsityError(f"method {name!r} begins with none of {', '.join(KINDS)}; use such as dst-90 or bdwp-2:8")
    pairs = dict(_setting(name, text) for text in settings)
    recipe = KINDS[kind](amount, pairs, block)
    if recipe.policy is not None:
        recipe.policy(1_000_000, 0)  # refuse bad settings now, not in the middle of a comparison
    return recipe


def _setting(name: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise SparsityError(f"{text!r} in method {name!r} is no setting; write such as fraction=0.1")
    return key, value


def _refuse_others(settings: Settings, known: tuple[str, ...]) -> None:
    for name in settings:
        if name not in known:
            raise SparsityError(f"setting {name!r} is not known; use {', '.join(known) or 'none with this method'}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise SparsityError(f"{text!r} is not a number; write a method such as dst-90, bdwp-2:8 or dts-0.5") from error
