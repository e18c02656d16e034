"""BERT-base with a two-class head (Devlin et al., 2019): 109,483,778 parameters.

109,482,240 of them are the published encoder's: a vocabulary of 30,522, 512 positions, 2 segments, twelve blocks of
width 768, and the pooler. The head adds 2 x 768 weights and 2 biases.
"""

import torch
from torch import Tensor, nn

from acf.zoo.networks.transformer import SelfAttention, feed_forward

VOCABULARY = 30_522
"""Token numbers; 0 is padding."""

_WIDTH, _HEADS, _BLOCKS, _POSITIONS, _SEGMENTS = 768, 12, 12, 512, 2


class BertBlock(nn.Module):
    """Attention and feed-forward layers, each with a residual, normalised after it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention(_WIDTH, _HEADS)
        self.norm1 = nn.LayerNorm(_WIDTH, eps=1e-12)
        self.mlp = feed_forward(_WIDTH)
        self.norm2 = nn.LayerNorm(_WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """``[batch, tokens, width]``."""
        tokens = self.norm1(tokens + self.dropout(self.attention(tokens, mask)))
        return self.norm2(tokens + self.dropout(self.mlp(tokens)))  # type: ignore[no-any-return]


class BertBase(nn.Module):
    """The encoder, its pooler and a linear head; dropout of 0.1 as in the publication, except within attention."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, _WIDTH, padding_idx=0)
        self.positions = nn.Embedding(_POSITIONS, _WIDTH)
        self.segments = nn.Embedding(_SEGMENTS, _WIDTH)
        for embedding in (self.words, self.positions, self.segments):
            nn.init.normal_(embedding.weight, std=0.02)
        self.norm = nn.LayerNorm(_WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(BertBlock() for _ in range(_BLOCKS))
        self.pooler = nn.Linear(_WIDTH, _WIDTH)
        self.head = nn.Linear(_WIDTH, classes)

    def forward(self, words: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of token numbers ``[batch, tokens]``, all of the first segment."""
        positions = torch.arange(words.shape[1], device=words.device)
        embedded = self.words(words) + self.positions(positions) + self.segments.weight[0]
        tokens = self.dropout(self.norm(embedded))
        mask = (words != 0)[:, None, None, :]
        for block in self.blocks:
            tokens = block(tokens, mask)
        return self.head(torch.tanh(self.pooler(tokens[:, 0])))  # type: ignore[no-any-return]
