"""Translation with a trained `Transformer`: beam search, with one beam a greedy one."""

from dataclasses import dataclass

import torch
from torch import Tensor

from acf.errors import DataError
from acf.zoo.networks.transformer import Transformer


@dataclass(frozen=True)
class Decoding:
    """How to decode: tokens that ``begin`` and ``end`` a sentence, the ``most`` tokens of one, and the ``beams``.

    Hypotheses are ranked by log-probability over ``((5 + length) / 6) ** length_penalty`` (Vaswani et al., 2017: 0.6).
    """

    begin: int
    end: int
    most: int
    beams: int = 4
    length_penalty: float = 0.6

    def __post_init__(self) -> None:
        if self.beams < 1 or self.most < 1:
            raise DataError(f"{self.beams} beams of {self.most} tokens decode nothing; use 1 or more of both")


@torch.no_grad()
def translate(model: Transformer, source: Tensor, decoding: Decoding) -> list[list[int]]:
    """The best hypothesis for every sentence of ``source [batch, tokens]``, without its begin and end tokens.

    The model is in evaluation mode meanwhile.
    """
    was_training = model.training
    model.eval()
    try:
        return _best(_search(model, source, decoding), len(source), decoding)
    finally:
        model.train(was_training)


@dataclass(frozen=True, eq=False)
class _Beams:
    """Hypotheses ``tokens [batch * beams, length]`` and their log-probabilities ``scores [batch, beams]``."""

    tokens: Tensor
    scores: Tensor


def _search(model: Transformer, source: Tensor, decoding: Decoding) -> _Beams:
    batch, beams = len(source), decoding.beams
    mask = model.source_mask(source)
    encoded = model.encode(source, mask).repeat_interleave(beams, dim=0)
    mask = None if mask is None else mask.repeat_interleave(beams, dim=0)
    state = model.decoder_state(encoded, mask)
    tokens = source.new_full((batch * beams, 1), decoding.begin)
    scores = encoded.new_full((batch, beams), -torch.inf, dtype=torch.float32)
    scores[:, 0] = 0.0  # all beams are alike at first: one of them is continued
    finished = torch.zeros(batch * beams, dtype=torch.bool, device=source.device)
    first = torch.arange(batch, device=source.device)[:, None] * beams
    for _ in range(decoding.most):
        following = model.decode_next(tokens[:, -1], state).float().log_softmax(-1)
        following.masked_fill_(finished[:, None], -torch.inf)
        following[:, decoding.end].masked_fill_(finished, 0.0)  # a finished hypothesis stays what it is
        vocabulary = following.shape[1]
        scores, places = (scores.view(-1, 1) + following).view(batch, -1).topk(beams)
        origin = (first + places // vocabulary).flatten()
        chosen = (places % vocabulary).flatten()
        tokens = torch.cat([tokens[origin], chosen[:, None]], dim=1)
        state.reorder(origin)
        finished = finished[origin] | (chosen == decoding.end)
        if bool(finished.all()):
            break
    return _Beams(tokens, scores)


def _best(found: _Beams, batch: int, decoding: Decoding) -> list[list[int]]:
    tokens = found.tokens[:, 1:].view(batch, decoding.beams, -1)
    lengths = (tokens != decoding.end).sum(-1)
    ranks = found.scores / ((5 + lengths) / 6) ** decoding.length_penalty
    best = tokens[torch.arange(batch, device=tokens.device), ranks.argmax(1)]
    return [[token for token in sentence if token != decoding.end] for sentence in best.tolist()]
