"""Labelled examples, and the batches that a network of the zoo is trained on."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Examples ``inputs [n, ...]`` and ``labels [n]``; ``name`` is how results must cite the set.

    Images are uint8 ``[n, channels, h, w]``, sentences and pairs are integers; ``padded`` sentences end in zeros.
    Labels are class numbers, or floats of 0 and 1 where they are compared with a single score.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    padded: bool = False

    def batch(self, indices: Tensor, image_size: int, device: str) -> tuple[Tensor, Tensor]:
        """The examples at ``indices``: sentences cut to the longest of them, images as three channels in [-2, 2].

        Images are resized to ``image_size`` x ``image_size``, bilinearly.
        """
        inputs, labels = self.inputs[indices].to(device), self.labels[indices].to(device)
        if self.padded:
            inputs = inputs[:, : int((inputs != 0).sum(dim=1).max())]
        if inputs.dim() < 4:
            return inputs, labels
        images = (inputs.float() / 255 - 0.5) * 4
        images = F.interpolate(images, (image_size, image_size), mode="bilinear")
        return images.expand(-1, 3, -1, -1), labels

    def to(self, device: str) -> "LabelledData":
        """The same examples on ``device``."""
        return LabelledData(self.name, self.inputs.to(device), self.labels.to(device), self.padded)

    def part(self, which: slice) -> "LabelledData":
        """A contiguous part of the examples."""
        return LabelledData(self.name, self.inputs[which], self.labels[which], self.padded)
