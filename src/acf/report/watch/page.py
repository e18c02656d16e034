"""The live view as a page: a small web server that only this machine can reach."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from math import isfinite
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from acf.errors import FileError
from acf.metrics.run_history import RunHistory, RunReader
from acf.report.watch.pictures import shrunk

LOOPBACK = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost")
"""Names under which a browser of this machine may ask; any other is refused, so that no web page can read along."""

MOST_POINTS, MOST_PICTURES, PICTURE_SIDE = 600, 40, 96
"""Points of a curve, moves whose masks are sent, and cells of a picture on a side."""

Item = TypeVar("Item")


def page_server(reader: RunReader, port: int = 0) -> ThreadingHTTPServer:
    """A server of the run's page on `LOOPBACK`; port 0: any that is free. Call ``serve_forever`` on it."""
    reader.update()  # a folder without a log is refused now
    try:
        return ThreadingHTTPServer((LOOPBACK, port), partial(_Handler, reader, Lock()))
    except (OSError, OverflowError) as error:
        raise FileError(f"port {port} cannot be used ({error}); pass another, or 0 for any that is free") from error


class _Handler(BaseHTTPRequestHandler):
    """Answers ``/`` with the page and ``/run.json`` with the run."""

    def __init__(self, reader: RunReader, lock: Lock, *args: Any) -> None:
        self.reader, self.lock = reader, lock
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer a browser of this machine."""
        if (self.headers.get("Host") or "").rpartition(":")[0] not in HOSTS:
            self._send(403, "text/plain", b"acf watch answers 127.0.0.1 and localhost only\n")
            return
        answers: dict[str, Callable[[], tuple[str, bytes]]] = {"/": self._page, "/run.json": self._run}
        answer = answers.get(self.path)
        if answer is None:
            self._send(404, "text/plain", b"there are / and /run.json\n")
        else:
            self._send(200, *answer())

    def _page(self) -> tuple[str, bytes]:
        environment = Environment(loader=PackageLoader("acf.report", ""), autoescape=True, undefined=StrictUndefined)
        page = environment.get_template("watch.html.jinja").render(name=self.reader.history.name)
        return "text/html", page.encode()

    def _run(self) -> tuple[str, bytes]:
        with self.lock:
            values = page_values(self.reader.update())
        return "application/json", json.dumps(values, separators=(",", ":"), allow_nan=False).encode()

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", "default-src 'self' 'unsafe-inline'; img-src 'self' data:")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing in the terminal."""


def page_values(history: RunHistory) -> dict[str, Any]:
    """What the page draws, bounded: curves and masks at equal distances over the run."""
    points = sampled(history.steps, MOST_POINTS)
    curves = {
        "loss": [[point.step, point.loss] for point in points if point.loss is not None],
        "joules": [[point.step, point.joules] for point in points if point.joules is not None],
        "sparsity": [[move.step, move.sparsity] for move in history.moves if move.sparsity is not None],
        "flip rate": [[move.step, move.flip_rate] for move in history.moves if move.flip_rate is not None],
    }
    curves["ms/step"] = [
        [after.step, 1e3 * (after.seconds - before.seconds) / (after.step - before.step)]
        for before, after in pairwise(points)
        if after.step > before.step
    ]
    for name in history.to_dict()["measured"]:
        curves[name] = [[point.step, point.measured[name]] for point in history.steps if name in point.measured]
    moves = [move for move in sampled(history.moves, MOST_PICTURES) if move.masks]
    pictures = [{"step": move.step, "layers": _pictures(move.masks)} for move in moves]
    shown = {name: [point for point in points if isfinite(point[1])] for name, points in curves.items()}
    return history.to_dict() | {"curves": {k: v for k, v in shown.items() if v}, "masks": pictures}


def _pictures(masks: dict[str, Any]) -> dict[str, list[list[int]]]:
    """Shares of present blocks in percent, by layer."""
    small = {name: shrunk(mask, PICTURE_SIDE, PICTURE_SIDE) for name, mask in masks.items()}
    return {name: np.rint(100 * shares).astype(int).tolist() for name, shares in small.items()}


def sampled(items: Sequence[Item], most: int) -> list[Item]:
    """At most that many at equal distances, the first and the last among them.

    >>> sampled(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]
