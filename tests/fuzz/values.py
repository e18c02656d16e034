"""Values that programs do not expect, and changes to well-formed documents."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 3, 7, 255, 256, 65_536, 10**6, 10**9, 2**31, 2**63, 2**64, 10**30, 0.0, -0.0, 0.5, 1e-300, 1e300,
    float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, "", "x", "\u202e[red]", "../../x", "a" * 5000, [], {}, [1, 2], {"a": 1})


def strange(rng: Random) -> Any:
    """A number far from the usual, more often than not, or something that is no number."""
    return rng.choice(NUMBERS if rng.random() < 0.6 else OTHERS)


def mutated(rng: Random, document: Any) -> Any:
    """A copy of a JSON-like document with one value changed, removed, doubled or exchanged for a strange one."""
    if isinstance(document, dict) and document and rng.random() < 0.95:
        key = rng.choice(sorted(document))
        if rng.random() < 0.1:
            return {name: value for name, value in document.items() if name != key}
        return {**document, key: mutated(rng, document[key])}
    if isinstance(document, list | tuple) and document and rng.random() < 0.95:
        index = rng.randrange(len(document))
        rest = list(document)
        action = rng.random()
        if action < 0.1:
            del rest[index]
        elif action < 0.2:
            rest.insert(index, rest[index])
        else:
            rest[index] = mutated(rng, rest[index])
        return rest
    if type(document) in (int, float) and rng.random() < 0.5:
        return rng.choice((document * 1000, document + 1, document - 1, -document, document / 2, document * 2))
    return strange(rng)


def damaged(rng: Random, content: bytes) -> bytes:
    """Bytes with a bit flipped, a part cut out or doubled, or the end missing."""
    if not content:
        return content
    where, action = rng.randrange(len(content)), rng.random()
    if action < 0.5:
        changed = bytearray(content)
        changed[where] ^= 1 << rng.randrange(8)
        return bytes(changed)
    length = rng.randrange(1, 64)
    if action < 0.7:
        return content[:where]
    return content[:where] + content[where + length :] if action < 0.85 else content[: where + length] + content[where:]


def strange_tensor(rng: Random, tensor: Any) -> Any:
    """A tensor of another shape, type, layout or content than ``tensor``, or no tensor at all."""
    import torch

    changes = (
        lambda: tensor[:0] if tensor.dim() else tensor,
        lambda: tensor.double(),
        lambda: torch.cat([tensor, tensor]) if tensor.dim() else tensor,
        lambda: tensor.reshape(-1),
        lambda: tensor * 0 - 1,
        lambda: tensor.to(torch.int16),
        lambda: tensor.bool(),
        lambda: tensor.to(torch.complex64),
        lambda: torch.full_like(tensor, 120) if tensor.dtype != torch.bool else tensor,
        lambda: tensor * float("nan") if tensor.is_floating_point() else tensor,
        lambda: tensor + float("inf") if tensor.is_floating_point() else tensor + 2**30,
        lambda: torch.zeros(()),
        lambda: tensor[None],
        lambda: tensor.t() if tensor.dim() == 2 else tensor,
        lambda: torch.zeros(1).expand(1000, 1000),
        lambda: torch.zeros(4, 4).to_sparse(),
        lambda: torch.zeros(2, 2, device="meta"),
        lambda: None,
        lambda: "x",
    )  # fmt: skip
    return rng.choice(changes)()


def strange_array(rng: Random) -> Any:
    """An array that programs do not expect, or no array."""
    import numpy as np

    arrays = (
        np.zeros((0, 4)), np.zeros(()), np.full((4, 4), np.nan), np.full((4, 4), np.inf), np.ones((4, 4))[:, ::2],
        np.ones((4, 4)).T, np.ones((4, 4), dtype=np.complex64), np.array([["a"]]), np.array([None], dtype=object),
        np.ones((2, 2, 2, 2)), np.ones(4, dtype=np.int8), np.ones((4, 4), dtype=bool), np.array([1e-310, 1e300]),
        np.broadcast_to(np.float32(1), (3, 5)), None, "x", [[1, 2], [3]], 1, float("nan"),
    )  # fmt: skip
    return rng.choice(arrays)


@contextmanager
def plain(*allowed: type[BaseException]) -> Iterator[None]:
    """Errors of a Python call that a caller expects: one of ``allowed`` with one line that says something."""
    try:
        yield
    except allowed as error:
        if len(str(error).strip().splitlines()) != 1:
            raise AssertionError(f"{type(error).__name__} is not one line: {error!r}") from error
