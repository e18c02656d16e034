"""Transformer-Base on sentence pairs: WMT as line-parallel files, Multi30k, Tatoeba, or pairs of a small grammar."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.bench.accuracy.training import rising_steps
from acf.bench.evaluation.task import EpochOrder
from acf.bench.training.task import TaskSpec, computing
from acf.errors import DataError
from acf.zoo.data.parallel_text import Pairs, ParallelText, load_parallel_text
from acf.zoo.data.subwords import BEGIN, END, PADDING, Codec, padded, train_codec
from acf.zoo.decoding import Decoding, translate
from acf.zoo.networks.transformer import Attention, EncoderLayer, Transformer, TransformerSpec

TEST_BATCH = 250
EXTRA_TOKENS = 50
"""A translation may have this many tokens more than its source: Vaswani et al., 2017, section 6.1."""

SIZES: dict[str, dict[str, int]] = {
    "base": {"width": 512, "heads": 8, "inner": 2048, "layers": 6},
    "small": {"width": 64, "heads": 4, "inner": 128, "layers": 1},
}
"""Transformer-Base itself, and a network that a CPU trains in seconds."""

RATES = {"base": 7e-4, "small": 3e-3}
LONG_RISE = 4_000
"""Steps in which the learning rate of Transformer-Base rises to its peak in Vaswani et al., 2017, section 5.3."""

VOCABULARY_MULTIPLE = 64
RESIDENT_BYTES = 2**30
"""Up to this size the training pairs lie on the device, so that no step waits for a copy from the host."""


@dataclass(frozen=True)
class TextLengths:
    """``tokens`` of a training sentence with its end, longer pairs are left out; test sentences decoded, 0: all."""

    tokens: int = 40
    vocabulary: int = 10_000
    test_sentences: int = 0
    beams: int = 4


def load_transformer(
    text: ParallelText, lengths: TextLengths, spec: TaskSpec, device: torch.device
) -> "TransformerTask":
    """The task on sentence pairs, with a vocabulary trained on them."""
    return TransformerTask(spec, text, train_codec(text, lengths.vocabulary), lengths, device)


def read_pairs(data_set: str, folder: Path | None, direction: str) -> ParallelText:
    """The set of that name with its direction in the name."""
    text = load_parallel_text(data_set, folder, direction)
    return ParallelText(f"{text.name}, {direction}", text.train, text.validation, text.test, text.words)


def default_spec(size: str, batch: int) -> TaskSpec:
    """Batch in sentence pairs, peak learning rate and weight decay."""
    return TaskSpec(f"transformer-{size}", "validation loss", SIZES[size]["width"], batch, RATES[size], 0.01)


def peak_rate(size: str, steps: int) -> float:
    """The peak learning rate of a run of ``steps``: lower where it must rise in fewer steps than `LONG_RISE`.

    Normalised after their residuals, twelve dense layers hardly learn when the rate rises to its full peak in a hundred
    steps or so, where sparse ones do. The peak falls with the fourth root of the shorter rise.

    >>> peak_rate("base", 100_000), round(peak_rate("base", 1_356), 6)
    (0.0007, 0.000357)
    """
    if size != "base":
        return RATES[size]
    return float(RATES[size] * min(1.0, rising_steps(steps) / LONG_RISE) ** 0.25)


class TransformerTask:
    """AdamW and label smoothing 0.1; quality is the validation loss in nats per token, BLEU is scored at the end."""

    higher_is_better = False
    unit = "target tokens"

    def __init__(
        self, spec: TaskSpec, text: ParallelText, codec: Codec, lengths: TextLengths, device: torch.device
    ) -> None:
        self.spec, self.text, self.codec, self.lengths, self.device = spec, text, codec, lengths, device
        source, target = _encoded(codec, text.train)
        fits = [max(len(a), len(b)) < lengths.tokens for a, b in zip(source, target, strict=True)]
        source, target = ([each for each, keep in zip(side, fits, strict=True) if keep] for side in (source, target))
        if len(source) < spec.batch:
            raise DataError(
                f"{len(source)} of {len(text.train)} training pairs have at most {lengths.tokens} tokens, fewer than a "
                f"batch of {spec.batch}; pass a larger --tokens or a smaller --batch"
            )
        pairs = _tensors(source, target, lengths.tokens)
        resident = sum(each.nbytes for each in pairs) <= RESIDENT_BYTES
        self.source, self.inputs, self.labels = (each.to(device) for each in pairs) if resident else pairs
        self.target_tokens = sum(len(each) + 1 for each in target) / len(target)
        self.order = EpochOrder(len(source))

    @property
    def data(self) -> str:
        """Name of the set, pairs and vocabulary."""
        pairs = f"{len(self.source)} training, {len(self.text.validation)} validation, {len(self._test)} test pairs"
        return f"{self.text.name}: {pairs}, {self.codec.vocabulary} tokens in the vocabulary"

    @property
    def _test(self) -> Pairs:
        return self.text.test[: self.lengths.test_sentences or None]

    def model(self, sizes: TaskSpec) -> nn.Module:
        """A fresh network; the vocabulary is rounded up to whole tiles.

        What a residual adds starts smaller by the root of their number, as in GPT-2 (Radford et al., 2019): with the
        norm after each residual, as Transformer-Base has it, dense layers else hardly learn in a short run.
        """
        vocabulary = ceil(self.codec.vocabulary / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
        shape = SIZES[self.spec.name.removeprefix("transformer-")] | {"width": sizes.width}
        network = Transformer(TransformerSpec(vocabulary, padding=PADDING, **shape))
        for name, parameter in network.named_parameters():
            if parameter.dim() == 2 and "embedding" not in name:
                nn.init.xavier_uniform_(parameter)
        for residuals, layers in ((2, network.encoder), (3, network.decoder)):
            for layer in layers.modules():
                if isinstance(layer, Attention | EncoderLayer):
                    last = layer.output if isinstance(layer, Attention) else layer.outer
                    nn.init.xavier_uniform_(last.weight, gain=(residuals * len(layers)) ** -0.5)
        return network.to(self.device)

    def batch(self, step: int, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Source, decoder input and labels, ``[size, tokens]`` each."""
        rows = self.order.indices(step, size, generator.initial_seed()).to(self.source.device)
        return tuple(each[rows].to(self.device) for each in (self.source, self.inputs, self.labels))

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Cross-entropy with label smoothing 0.1, without padding."""
        source, inputs, labels = batch
        scores = model(source, inputs).flatten(0, 1)
        return F.cross_entropy(scores, labels.flatten(), ignore_index=PADDING, label_smoothing=0.1)

    def measure(self, model: nn.Module) -> float:
        """Validation loss in nats per token."""
        return self.metrics(model)["validation loss"]

    @torch.no_grad()
    def metrics(self, model: nn.Module) -> dict[str, float]:
        """Loss without smoothing, and per cent of the next tokens that are right, on the validation pairs."""
        model.eval()
        loss, right, count = 0.0, 0, 0
        for source, inputs, labels in self._batches(self.text.validation):
            with computing(self.spec, self.device):
                scores = model(source, inputs).float().flatten(0, 1)
            flat, real = labels.flatten(), labels.flatten() != PADDING
            loss += float(F.cross_entropy(scores, flat, ignore_index=PADDING, reduction="sum"))
            right += int((scores.argmax(1) == flat)[real].sum())
            count += int(real.sum())
        model.train()
        return {"validation loss": loss / count, "next token %": 100.0 * right / count}

    def optimizer(self, model: nn.Module, sizes: TaskSpec) -> torch.optim.Optimizer:
        """AdamW with the betas of Vaswani et al., 2017."""
        return torch.optim.AdamW(
            model.parameters(),
            lr=torch.tensor(sizes.rate, device=self.device),
            betas=(0.9, 0.98),
            eps=1e-9,
            weight_decay=sizes.weight_decay,
            fused=True,
            capturable=self.device.type == "cuda",
        )

    def steps(self, epochs: float, batch: int) -> int:
        """Whole batches only."""
        return max(1, ceil(epochs * (len(self.source) // batch)))

    def for_tuning(self) -> "TransformerTask":
        """The evaluation uses fixed recipes."""
        raise DataError("the evaluation tunes nothing; use `acf bench training --tune-rates`")

    def examples_per_step(self, size: int) -> float:
        """Mean target tokens of ``size`` pairs, ends included, padding not."""
        return size * self.target_tokens

    def outputs(self, model: nn.Module) -> list[str]:
        """Translations of the test sentences by beam search."""
        assert isinstance(model, Transformer)
        found: list[str] = []
        for source, _, _ in self._batches(self._test):
            decoding = Decoding(BEGIN, END, source.shape[1] + EXTRA_TOKENS, self.lengths.beams)
            with computing(self.spec, self.device):
                found += self.codec.decode(translate(model, source, decoding))
        return found

    @property
    def references(self) -> Sequence[str]:
        """The test translations."""
        return [target for _, target in self._test]

    def captured_batch(self, examples: int) -> tuple[Tensor, ...]:
        """The first validation pairs, as long as the longest of them."""
        return next(self._batches(self.text.validation[:examples]))

    def _batches(self, pairs: Pairs) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All pairs in order, each batch as long as its longest sentence."""
        for start in range(0, len(pairs), TEST_BATCH):
            source, target = _encoded(self.codec, pairs[start : start + TEST_BATCH])
            longest = max(len(each) for each in (*source, *target)) + 1
            tensors = _tensors(source, target, longest)
            yield tensors[0].to(self.device), tensors[1].to(self.device), tensors[2].to(self.device)


def _encoded(codec: Codec, pairs: Pairs) -> tuple[list[list[int]], list[list[int]]]:
    return codec.encode([source for source, _ in pairs]), codec.encode([target for _, target in pairs])


def _tensors(source: list[list[int]], target: list[list[int]], length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Source with its end, target after a begin, target with its end; ``[pairs, length]``."""
    return (
        torch.from_numpy(padded([[*each, END] for each in source], length)),
        torch.from_numpy(padded([[BEGIN, *each] for each in target], length)),
        torch.from_numpy(padded([[*each, END] for each in target], length)),
    )
