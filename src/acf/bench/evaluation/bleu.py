"""BLEU by sacrebleu, with the signature that says how it was computed."""

from collections.abc import Sequence
from dataclasses import dataclass

from acf.extras import install_line

INSTALL = f"not scored: sacrebleu is not installed; {install_line('text')}, then render the runs again"


@dataclass(frozen=True)
class Bleu:
    """Corpus BLEU, or None with the reason in ``signature``."""

    score: float | None
    signature: str


def score_bleu(outputs: Sequence[str], references: Sequence[str]) -> Bleu:
    """BLEU of translations against one reference each; where sacrebleu is missing the signature says what to do."""
    try:
        from sacrebleu.metrics import BLEU  # type: ignore[import-not-found,attr-defined,unused-ignore]
    except ImportError:
        return Bleu(None, INSTALL)
    metric = BLEU()
    score = metric.corpus_score(list(outputs), [list(references)])
    return Bleu(float(score.score), str(metric.get_signature()))
