"""Neural collaborative filtering, NeuMF (He et al., 2017) with 8 factors: 392,601 parameters."""

from itertools import pairwise

import torch
from torch import Tensor, nn

USERS, ITEMS = 6_040, 3_706
"""Users and items of MovieLens-1M: He et al., 2017, section 4.1."""

_FACTORS, _MLP = 8, (64, 32, 16, 8)


class NeuralCollaborativeFiltering(nn.Module):
    """Matrix factorisation and an MLP over embeddings of a user and an item, joined by one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.user_factors = nn.Embedding(USERS, _FACTORS)
        self.item_factors = nn.Embedding(ITEMS, _FACTORS)
        self.user_features = nn.Embedding(USERS, _MLP[0] // 2)
        self.item_features = nn.Embedding(ITEMS, _MLP[0] // 2)
        for embedding in (self.user_factors, self.item_factors, self.user_features, self.item_features):
            nn.init.normal_(embedding.weight, std=0.01)  # He et al., 2017, section 4.1
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(_MLP):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.mlp = nn.Sequential(*layers)
        self.head = nn.Linear(_FACTORS + _MLP[-1], 1)

    def forward(self, pairs: Tensor) -> Tensor:
        """Scores ``[batch]`` of ``pairs [batch, 2]``: the numbers of a user and an item."""
        users, items = pairs[:, 0], pairs[:, 1]
        factors = self.user_factors(users) * self.item_factors(items)
        features = torch.cat([self.user_features(users), self.item_features(items)], dim=1)
        return self.head(torch.cat([factors, self.mlp(features)], dim=1)).squeeze(1)  # type: ignore[no-any-return]
