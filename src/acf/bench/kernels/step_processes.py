"""Training steps in processes of their own: compiled at the same time, then timed one after another.

Compiling takes a host far longer than timing takes the device. Rounds alternate between the variants, which spreads
changes of the clock (the chip slows down as it heats) evenly over all of them.
"""

import multiprocessing
import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from acf.bench.kernels.training_step import CompiledStep, StepVariant

ROUNDS = 3
ANSWER_SECONDS = 300
"""How long a process may take to compile before it counts as failed."""


@dataclass(frozen=True)
class StepTime:
    """Median time of a step and the most memory it held (None with CUDA graphs), with its stored weights."""

    milliseconds: float
    peak_gib: float | None
    parameters: int


@dataclass(frozen=True)
class StepFailure:
    """Why a step could not be compiled or run."""

    reason: str


def time_steps(variants: Sequence[StepVariant], rounds: int = ROUNDS) -> dict[StepVariant, StepTime]:
    """Time every variant; one that fails is left out, and says why on the terminal."""
    context = multiprocessing.get_context("spawn")
    compile_threads = max(1, (os.cpu_count() or 1) // max(1, len(variants)))
    pipes: dict[StepVariant, Connection] = {}
    processes = []
    for variant in variants:
        pipes[variant], theirs = context.Pipe()
        processes.append(context.Process(target=_serve, args=(variant, compile_threads, theirs)))
        processes[-1].start()
        theirs.close()
    try:
        return _take_turns(pipes, rounds)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _take_turns(pipes: dict[StepVariant, Connection], rounds: int) -> dict[StepVariant, StepTime]:
    facts = {variant: _answer(pipe) for variant, pipe in pipes.items()}
    times: dict[StepVariant, list[float]] = {variant: [] for variant in pipes}
    for _ in range(rounds):
        for variant, pipe in pipes.items():
            if not isinstance(facts[variant], StepFailure):
                answer = _answer(pipe, "time")
                times[variant].append(answer) if isinstance(answer, float) else facts.update({variant: answer})
    results = {}
    for variant, fact in facts.items():
        if isinstance(fact, StepFailure):
            print(f"{variant} failed: {fact.reason}", flush=True)
        else:
            results[variant] = StepTime(sorted(times[variant])[rounds // 2], *fact)
    return results


def _answer(pipe: Connection, message: str = "") -> Any:
    """What the process says, to ``message`` if there is one; a failure where it says nothing."""
    try:
        if message:
            pipe.send(message)
        if pipe.poll(ANSWER_SECONDS):
            return pipe.recv()
    except (EOFError, OSError):
        return StepFailure("its process ended")
    return StepFailure(f"no answer within {ANSWER_SECONDS} s")


def _serve(variant: StepVariant, compile_threads: int, pipe: Connection) -> None:
    """Prepare ``variant``, tell its peak memory and stored weights, then time it once for every message."""
    import torch._inductor.config

    torch._inductor.config.compile_threads = compile_threads
    try:
        step = CompiledStep(variant)
        pipe.send((step.peak_gib(), step.parameters))
        while pipe.recv():
            pipe.send(step.milliseconds())
    except Exception:
        pipe.send(StepFailure(traceback.format_exc(limit=-4)))
