"""Keeping compiled graphs of other ops out: torch's caches on disk know nothing of what a graph was traced through.

`torch.compile` traces into the differentiable ops of this package, and keeps what it made under a key of the caller's
graph alone. After an update of acf, that key would still find graphs of the ops as they were.
"""

import hashlib
from pathlib import Path

from torch.compiler import config

TAG = "acf.ops="


def tag_of(folder: Path) -> str:
    """What tells the Python sources below ``folder`` from others."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes())
    return f"{TAG}{digest.hexdigest()[:16]}"


def tag_graph_cache() -> None:
    """Add the tag of these ops to the key of torch's caches, beside what a user or another package has put there."""
    others = [each for each in config.cache_key_tag.split() if not each.startswith(TAG)]
    config.cache_key_tag = " ".join([*others, tag_of(Path(__file__).parent)])
