"""The record of one training run, as a report shows it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingRecord:
    """One finished run: final test accuracy and weight sparsity in [0, 1], and curves by step.

    ``losses[i]`` is the training loss of step ``i + 1``; ``test_accuracies`` are ``(step, accuracy)`` pairs;
    ``moved_blocks`` are ``(step, blocks that moved)`` pairs; ``seconds`` is wall-clock time.
    """

    label: str
    test_accuracy: float
    weight_sparsity: float
    losses: tuple[float, ...]
    test_accuracies: tuple[tuple[int, float], ...]
    moved_blocks: tuple[tuple[int, int], ...]
    seconds: float
