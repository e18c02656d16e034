"""Results of Yosys runs, kept in the cache by module, and computed for several modules at a time.

A fabric has hundreds of thousands of cells but only some forty different modules. Each is mapped by itself, in
parallel, and its result is kept under a hash of its text: a second run, or one after a change to a single module,
reuses the rest.
"""

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from acf.errors import FileError
from acf.files import cache_directory, write_whole


def cached(kind: str, work: Callable[..., Any], name: str, *inputs: str) -> Any:
    """``work(name, *inputs)`` as plain JSON values, or the cached result.

    The key is the source of the module that defines ``work``, all arguments, and the version of Yosys.
    """
    key = repr((inspect.getsource(sys.modules[work.__module__]), name, inputs, version("pyosys")))
    path = cache_directory() / "rtl" / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        made = work(name, *inputs)
        with suppress(FileError):  # a cache that is full or closed costs time the next time, and no result
            write_whole(path, json.dumps(made).encode())
        return made


def for_each(names: list[str], work: Callable[[str], Any]) -> dict[str, Any]:
    """``work(name)`` for every name, one thread per available core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=cores) as pool:
        return dict(zip(names, pool.map(work, names), strict=True))
