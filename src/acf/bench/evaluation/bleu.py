"""BLEU by sacrebleu, with the signature that says how it was computed."""

from collections.abc import Sequence
from dataclasses import dataclass

from acf.errors import MissingDependencyError
from acf.extras import import_optional, install_line

INSTALL = f"not scored: sacrebleu is not installed; {install_line('text')}, then render the runs again"


@dataclass(frozen=True)
class Bleu:
    """Corpus BLEU, or None with the reason in ``signature``."""

    score: float | None
    signature: str


def score_bleu(outputs: Sequence[str], references: Sequence[str]) -> Bleu:
    """BLEU of translations against one reference each; where sacrebleu is missing the signature says what to do."""
    try:
        metric = import_optional("sacrebleu.metrics", needed_by="BLEU").BLEU()
    except MissingDependencyError:
        return Bleu(None, INSTALL)
    score = metric.corpus_score(list(outputs), [list(references)])
    return Bleu(float(score.score), str(metric.get_signature()))
