"""Text for language models: documents of a file or folder, a byte-level BPE trained on them, batches of tokens."""

import hashlib
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acf.errors import DataError
from acf.files import replacing
from acf.zoo.data.compressed import unpacked
from acf.zoo.data.subwords import import_tokenizers

SEPARATOR = "\n\0\n"
"""What stands between two documents of a text file."""

SUFFIXES = (".c", ".rst", ".txt")
BPE_SAMPLE_CHARACTERS = 40_000_000
VALIDATION_SHARE = 0.01
END_OF_DOCUMENT = "<|end|>"


@dataclass(frozen=True, eq=False)
class TokenSet:
    """Training and validation tokens, uint16 ``[tokens]`` each, and the size of the vocabulary."""

    train: NDArray[np.uint16]
    validation: NDArray[np.uint16]
    vocabulary: int
    bytes_per_token: float


def read_documents(path: Path) -> list[str]:
    """The documents of a ``.txt`` or ``.txt.xz`` file, or every C source and text file below a folder.

    A folder's documents come in an order that follows from their names alone, as if shuffled.
    """
    files = _files(path)
    if path.is_dir():
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    else:
        raw = _content(path)
        texts = raw.decode("utf-8", errors="replace").split(SEPARATOR)
    documents = [text.replace("\0", "").strip() for text in texts]
    documents = [text for text in documents if text]
    if len(documents) < 2:
        raise DataError(f"{path} holds {len(documents)} documents; at least two are needed, one for validation")
    return documents


def _content(path: Path) -> bytes:
    try:
        return unpacked(path) if path.suffix == ".xz" else path.read_bytes()
    except (OSError, lzma.LZMAError, EOFError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); pass a text file, plain or .xz, that is whole") from error


def load_tokens(path: Path, vocabulary: int, cache: Path) -> TokenSet:
    """Tokens of the documents in ``path``: a BPE of ``vocabulary`` entries, the last hundredth kept for validation.

    Training the BPE and encoding take a minute for 200 MB; the result is kept in ``cache``, for this content alone.
    """
    stored = token_file(path, vocabulary, cache)
    if not stored.exists():
        train, validation, ratio = _encode(read_documents(path), vocabulary)
        cache.mkdir(parents=True, exist_ok=True)
        with replacing(stored) as temporary, temporary.open("wb") as file:
            np.savez(file, train=train, validation=validation, bytes_per_token=np.float64(ratio))
    with np.load(stored) as arrays:
        return TokenSet(arrays["train"], arrays["validation"], vocabulary, float(arrays["bytes_per_token"]))


def token_file(path: Path, vocabulary: int, cache: Path) -> Path:
    """Where the tokens of ``path`` are kept; another corpus, though of the same name, has another file."""
    digest = hashlib.sha256()
    for file in _files(path):
        name = str(file.relative_to(path)) if path.is_dir() else ""
        digest.update(f"{name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as content:
            while chunk := content.read(1 << 20):
                digest.update(chunk)
    return cache / f"{path.name}-{vocabulary}-{digest.hexdigest()[:16]}.npz"


def _files(path: Path) -> list[Path]:
    """The file itself, or the C sources and texts below a folder in an order that follows from their names alone."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{path} is neither a text file nor a folder; pass --data with the corpus to train on")
    files = [file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file()]
    return sorted(files, key=lambda file: hashlib.sha256(str(file.relative_to(path)).encode()).digest())


def _encode(documents: list[str], vocabulary: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16], float]:
    tokenizers = import_tokenizers()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_DOCUMENT],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_sample(documents), trainer)
    held_out = max(1, round(VALIDATION_SHARE * len(documents)))
    train, validation = _tokens(tokenizer, documents[:-held_out]), _tokens(tokenizer, documents[-held_out:])
    size_bytes = sum(len(text.encode()) for text in documents)
    return train, validation, size_bytes / (train.size + validation.size)


def _sample(documents: list[str]) -> Iterator[str]:
    """Documents up to the number of characters that the BPE is trained on."""
    left = BPE_SAMPLE_CHARACTERS
    for text in documents:
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return


def _tokens(tokenizer: Any, documents: list[str]) -> NDArray[np.uint16]:
    """All documents, each followed by the end mark, uint16."""
    end: int = tokenizer.token_to_id(END_OF_DOCUMENT)
    encodings = tokenizer.encode_batch_fast(documents)
    return np.concatenate([np.array([*encoding.ids, end], dtype=np.uint16) for encoding in encodings])


class TokenBatches:
    """Windows of ``context + 1`` tokens drawn at random from ``tokens [n]``, on a device."""

    def __init__(self, tokens: NDArray[np.uint16], context: int, device: torch.device) -> None:
        if tokens.size < context + 2:
            raise DataError(f"{tokens.size} tokens are fewer than a window of {context + 1}; use a larger corpus")
        self.tokens = torch.from_numpy(tokens.astype(np.int32)).to(device)
        self.context = context
        self.offsets = torch.arange(context + 1, device=device)

    def draw(self, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Inputs and targets, int64 ``[batch, context]`` each."""
        limit = self.tokens.numel() - self.context - 1
        starts = torch.randint(limit, (batch, 1), device=self.tokens.device, generator=generator)
        return self._windows(starts)

    def in_order(self, batch: int, most: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Up to ``most`` batches of windows that do not overlap, from the beginning."""
        count = (self.tokens.numel() - 1) // self.context // batch
        for index in range(min(count, most)):
            first = index * batch + torch.arange(batch, device=self.tokens.device)
            yield self._windows(first[:, None] * self.context)

    def _windows(self, starts: Tensor) -> tuple[Tensor, Tensor]:
        windows = self.tokens[starts + self.offsets].long()
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
