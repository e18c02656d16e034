"""The live view in the terminal."""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.text import Text

from acf.metrics.run_history import RunHistory, RunReader
from acf.printable import printable
from acf.report.watch.pictures import mask_lines, sparkline
from acf.units import si

MOST_LAYERS = 12
"""Masks that are drawn; the page draws all."""

STATE_STYLES = {"running": "green", "finished": "green"}
"""Any other state is a reason to look."""


def watch_in_terminal(reader: RunReader, seconds: float, sleep: Callable[[float], None] = time.sleep) -> RunHistory:
    """Show the run anew every ``seconds`` until it has ended; Ctrl-C stops watching. Returns what was shown last.

    A run that has ended is shown once, and so is any run where the output is no terminal.
    """
    console = Console()
    history = reader.update()
    if history.state != "running" or not console.is_terminal:
        console.print(view(history))
        return history
    with Live(view(history), console=console, auto_refresh=False) as live:
        try:
            while history.state == "running":
                sleep(seconds)
                history = reader.update()
                live.update(view(history), refresh=True)
        except KeyboardInterrupt:
            pass  # the run goes on; only watching ends
    return history


def view(history: RunHistory) -> RenderableType:
    """Everything about the run: state, figures, loss and masks."""
    style = STATE_STYLES.get(history.state, "red")
    parts: list[RenderableType] = [Text.assemble((printable(history.name), "bold"), "  ", (history.state, style))]
    if history.total_steps:
        parts.append(Padding(ProgressBar(total=history.total_steps, completed=history.step, width=60), 0))  # own line
    parts.append(_figures(history))
    losses = [point.loss for point in history.steps if point.loss is not None]
    if losses:
        parts.append(Text(f"loss {sparkline(losses)} {losses[-1]:.4g}"))
    if history.moves and history.moves[-1].masks:
        parts.append(_masks(history))
    if history.damaged_lines:
        parts.append(Text(f"{history.damaged_lines} lines of the log could not be read", "yellow"))
    return Group(*parts)


def _figures(history: RunHistory) -> Columns:
    """Name above value, as many side by side as the terminal has room for."""
    values = history.to_dict()
    step = f"{history.step:,}" + (f" of {history.total_steps:,}" if history.total_steps else "")
    texts = {
        "step": step,
        "loss": _number(values["loss"], ".4g"),
        "ms/step": _number(values["step_ms"], ".4g"),
        "elapsed": _duration(values["seconds"]),
        "remaining": _duration(values["remaining_seconds"]),
        "energy": "-" if values["joules"] is None else si(values["joules"], "J"),
        "sparsity": _number(values["sparsity"], ".1%"),
        "flip rate": _number(values["flip_rate"], ".1%"),
    } | {name: _number(value, ".4g") for name, value in values["measured"].items()}
    return Columns([Text(f"{printable(name)}\n{value}") for name, value in texts.items()], padding=(0, 3))


def _masks(history: RunHistory) -> RenderableType:
    move = history.moves[-1]
    panels = [_mask(name, mask) for name, mask in list(move.masks.items())[:MOST_LAYERS]]
    left_out = len(move.masks) - len(panels)
    caption = f"masks after step {move.step:,}" + (f"; {left_out} more layers on the page" if left_out else "")
    return Group(Text(caption, "dim"), Columns(panels))


def _mask(name: str, mask: NDArray[np.bool_]) -> Panel:
    picture = Text("\n".join(mask_lines(mask)))
    return Panel(picture, title=escape(printable(name)), subtitle=f"{mask.mean():.1%}", expand=False)


def _number(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)


def _duration(seconds: float | None) -> str:
    """Hours, minutes and seconds.

    >>> _duration(3725.2)
    '1:02:05'
    """
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
