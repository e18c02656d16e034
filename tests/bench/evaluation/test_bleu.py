"""BLEU with its signature, or the line that says how to have it."""

import sys

import pytest

from acf.bench.evaluation.bleu import score_bleu


def test_bleu_comes_with_its_signature() -> None:
    pytest.importorskip("sacrebleu")
    said = ["the cat sat on the mat today", "it rains again in the old town"]
    bleu = score_bleu(said, said)
    assert bleu.score == pytest.approx(100.0)
    assert "nrefs:1" in bleu.signature


def test_without_sacrebleu_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    bleu = score_bleu(["a"], ["a"])
    assert bleu.score is None
    assert "pip install 'adaptive-compute-fabric[text]'" in bleu.signature
