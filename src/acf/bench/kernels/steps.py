"""Whole training steps against `torch.compile`d dense ones: which variants are timed, and their ratios."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from acf.bench.kernels.step_processes import StepTime, time_steps
from acf.bench.kernels.training_step import (
    LINEAR_LAYERS,
    STEP_MODELS,
    StepModel,
    StepVariant,
    time_step_layers,
)

STEP_AIMS = {4096: 4.5, 2048: 3.2, 512: 1.5}
STEP_BLOCKS = (128, 64)
MODES = ("reduce-overhead", "default")
THRIFTY_BUDGET = 0.9
"""Share of activation memory at which the compiler recomputes what is pointwise and nothing else."""


def measure_steps() -> dict[str, Any]:
    """The layers of every model one by one, and whole steps at 90 %, compiled as they are and with CUDA graphs."""
    layers, rows = [], []
    for model in STEP_MODELS:
        chosen = {}
        for mode in MODES:
            for block in STEP_BLOCKS:
                timings = time_step_layers(model, block, mode == "reduce-overhead")
                chosen[mode, block] = tuple(timing.name for timing in timings if timing.pays)
                layers += [
                    {"model": model.name, "mode": mode, "block": block} | asdict(timing) | {"ratio": timing.ratio}
                    for timing in timings
                ]
        found = ratios(model, time_steps(variants_of(model, MODES, chosen)))
        rows += found
        print("\n".join(step_lines(found)), flush=True)
    return {"step_layers": layers, "steps": rows}


def variants_of(
    model: StepModel, modes: Sequence[str], chosen: dict[tuple[str, int], tuple[str, ...]]
) -> list[StepVariant]:
    """Dense, sparse, and sparse in the layers that pay in that mode alone, where that is another model.

    With CUDA graphs, where the device's time is all that counts, also with the GELU on its own; and the largest model,
    for which memory counts, with fewer activations kept. A GELU within a product cannot be recomputed without it, so
    there it stands on its own too.
    """
    variants = []
    for mode in modes:
        variants.append(StepVariant(model, mode=mode))
        for block in STEP_BLOCKS:
            variants.append(StepVariant(model, block, mode))
            if mode == "reduce-overhead":
                variants.append(StepVariant(model, block, mode, fused=False))
            if chosen[mode, block] != LINEAR_LAYERS:
                variants.append(StepVariant(model, block, mode, sparse_layers=chosen[mode, block]))
    if model.width >= 4096 and "default" in modes:
        variants.append(StepVariant(model, memory_budget=THRIFTY_BUDGET))
        variants.append(StepVariant(model, 128, memory_budget=THRIFTY_BUDGET, fused=False))
    return variants


def ratios(model: StepModel, times: dict[StepVariant, StepTime]) -> list[dict[str, Any]]:
    """A row for every sparse variant whose dense counterpart was timed too."""
    rows = []
    for variant, sparse in times.items():
        counterpart = StepVariant(model, None, variant.mode, variant.memory_budget, variant.attention)
        dense = times.get(counterpart)
        if variant.block is None or dense is None:
            continue
        rows.append(
            {
                "model": model.name,
                "mode": variant.mode,
                "activation_memory_budget": variant.memory_budget,
                "attention": variant.attention,
                "block": variant.block,
                "sparse_layers": list(variant.sparse_layers),
                "fused": variant.fused,
                "ratio": dense.milliseconds / sparse.milliseconds,
                "memory_ratio": sparse.peak_gib / dense.peak_gib if sparse.peak_gib and dense.peak_gib else None,
                "aim": STEP_AIMS[model.width],
                "dense": asdict(dense),
                "sparse": asdict(sparse),
            }
        )
    return rows


def step_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """One line for every row of `ratios`."""
    lines = []
    for row in rows:
        layers = " and ".join(row["sparse_layers"]) or "no layer"
        some = "" if len(row["sparse_layers"]) == len(LINEAR_LAYERS) else f", {layers} sparse"
        some += "" if row["fused"] else ", GELU on its own"
        memory = "" if row["memory_ratio"] is None else f", memory {row['memory_ratio']:.2f} of dense"
        setting = f"{row['mode']}, activation memory {row['activation_memory_budget']}"
        lines.append(
            f"step {row['model']} ({setting}) B={row['block']}{some}: "
            f"{row['dense']['milliseconds']:.2f} / {row['sparse']['milliseconds']:.2f} ms = {row['ratio']:.2f}x, "
            f"aim {row['aim']}{memory}"
        )
    return lines
