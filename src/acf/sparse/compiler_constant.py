"""Functions whose results `torch.compile` takes for constants, marked without loading the compiler."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def compiler_constant(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, whose result a compiled graph holds as a constant for the same arguments.

    `torch.compiler.assume_constant_result` sets the same mark, but imports TorchDynamo, which takes as long as torch
    itself: every process that imports `acf.nn` would wait for a compiler that it may not use.

    >>> import torch
    >>> vars(compiler_constant(lambda: 1)) == vars(torch.compiler.assume_constant_result(lambda: 1))
    True
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function
