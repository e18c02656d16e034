"""Which training steps are timed on a GPU, in which order, and what becomes of their times; no GPU is needed."""

from multiprocessing import Pipe
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("triton")

from acf.bench.kernels.step_processes import StepFailure, StepTime, _take_turns
from acf.bench.kernels.steps import MODES, ratios, step_lines, variants_of
from acf.bench.kernels.training_step import LINEAR_LAYERS, STEP_MODELS, StepVariant

LARGE, SMALL = STEP_MODELS[0], STEP_MODELS[2]


def test_a_model_of_the_layers_that_pay_is_timed_only_where_it_is_another_model() -> None:
    some = ("mlp.0", "mlp.2")
    chosen = {("reduce-overhead", 128): LINEAR_LAYERS, ("reduce-overhead", 64): some}
    chosen |= {("default", 128): (), ("default", 64): ()}
    variants = variants_of(SMALL, MODES, chosen)
    assert [variant for variant in variants if variant.sparse_layers != LINEAR_LAYERS] == [
        StepVariant(SMALL, 64, "reduce-overhead", sparse_layers=some),
        StepVariant(SMALL, 128, "default", sparse_layers=()),
        StepVariant(SMALL, 64, "default", sparse_layers=()),
    ]
    assert [variant.block for variant in variants if not variant.fused] == [128, 64]
    assert len(variants) == len(set(variants)) == 11


def test_the_largest_model_is_timed_with_fewer_activations_too() -> None:
    chosen = {(mode, block): LINEAR_LAYERS for mode in MODES for block in (128, 64)}
    thrifty = [variant for variant in variants_of(LARGE, MODES, chosen) if variant.memory_budget < 1]
    assert [(variant.block, variant.fused) for variant in thrifty] == [(None, True), (128, False)]


def test_a_ratio_is_taken_to_the_dense_step_of_the_same_mode_and_memory() -> None:
    times = {
        StepVariant(LARGE): StepTime(80.0, 8.0, 1000),
        StepVariant(LARGE, memory_budget=0.9): StepTime(90.0, 6.0, 1000),
        StepVariant(LARGE, 128): StepTime(20.0, 5.0, 100),
        StepVariant(LARGE, 128, memory_budget=0.9): StepTime(30.0, 3.0, 100),
        StepVariant(LARGE, 64, "reduce-overhead"): StepTime(10.0, None, 100),
    }
    found = {row["activation_memory_budget"]: (row["ratio"], row["memory_ratio"]) for row in ratios(LARGE, times)}
    assert found == {1.0: (4.0, 0.625), 0.9: (3.0, 0.5)}
    (line,) = [line for line in step_lines(ratios(LARGE, times)) if "memory 0.9" in line]
    assert "B=128:" in line
    assert "90.00 / 30.00 ms = 3.00x, aim 4.5, memory 0.50 of dense" in line


def test_a_line_says_which_layers_are_sparse_and_where_the_gelu_is() -> None:
    times = {
        StepVariant(SMALL): StepTime(8.0, 2.0, 10),
        StepVariant(SMALL, 64, sparse_layers=()): StepTime(8.0, 2.0, 10),
        StepVariant(SMALL, 64, sparse_layers=("mlp.0", "mlp.2"), fused=False): StepTime(5.0, 1.0, 5),
    }
    dense, some = step_lines(ratios(SMALL, times))
    assert "B=64, no layer sparse: 8.00 / 8.00 ms = 1.00x" in dense
    assert "B=64, mlp.0 and mlp.2 sparse, GELU on its own: 8.00 / 5.00 ms = 1.60x" in some


def test_steps_are_timed_in_turns_and_a_failing_one_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []
    pipes = {}

    def serve(name: str, pipe: Any, answers: list[Any]) -> None:
        pipe.send(answers[0])
        for answer in answers[1:]:
            pipe.recv()
            order.append(name)
            pipe.send(answer)
        pipe.close()

    plans: dict[StepVariant, list[Any]] = {
        StepVariant(SMALL): [(1.5, 10), 5.0, 9.0, 6.0],
        StepVariant(SMALL, 64): [(1.0, 2), 4.0, 3.0, 2.0],
        StepVariant(SMALL, 128): [StepFailure("out of memory")],
        StepVariant(SMALL, 128, "reduce-overhead"): [(None, 2), 4.0],
    }
    for number, (variant, answers) in enumerate(plans.items()):
        pipes[variant], theirs = Pipe()
        Thread(target=serve, args=(str(number), theirs, answers), daemon=True).start()
    results = _take_turns(pipes, rounds=3)
    assert results == {StepVariant(SMALL): StepTime(6.0, 1.5, 10), StepVariant(SMALL, 64): StepTime(3.0, 1.0, 2)}
    assert order == ["0", "1", "3", "0", "1", "0", "1"]
    said = capsys.readouterr().out
    assert "out of memory" in said
    assert "its process ended" in said
