"""Draw step-speedups.svg from the record docs/results/kernels-h200.json.

    python docs/figures/step_speedups.py

Bars: time of a dense training step over that of a block-sparse one, by model width and block size.
"""

import json
from pathlib import Path

HERE = Path(__file__).parent
RECORD = HERE.parent / "results" / "kernels-h200.json"
PICTURE = HERE / "step-speedups.svg"

WIDTH, HEIGHT = 640, 330
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 64, 62
BAR_WIDTH = 58
COLOURS = {64: "#8fb4d9", 128: "#1f5f99"}
HIGHEST = 5.0


def rows() -> list[dict[str, float]]:
    """Width, block and speedup of every step timed with CUDA graphs, narrowest model first."""
    steps = json.loads(RECORD.read_text())["steps"]
    found = [
        {"width": int(step["model"].split("=")[1].split(",")[0].split()[0]), **step}
        for step in steps
        if step["mode"] == "reduce-overhead"
    ]
    return sorted(found, key=lambda row: (row["width"], row["block"]))


def height_of(speedup: float) -> float:
    """Vertical position of a speedup."""
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * speedup / HIGHEST


def text(x: float, y: float, words: str, size: int = 13, anchor: str = "middle", fill: str = "#24292f") -> str:
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def axes() -> list[str]:
    """Horizontal lines at whole speedups, the dense step among them."""
    parts = []
    for speedup in range(int(HIGHEST) + 1):
        y = height_of(speedup)
        colour, dash = ("#c0392b", ' stroke-dasharray="5 4"') if speedup == 1 else ("#d8dee4", "")
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{colour}"{dash}/>')
        parts.append(text(LEFT - 8, y + 4, f"{speedup}x", anchor="end"))
    return [*parts, text(LEFT + 4, height_of(1) - 5, "dense", 12, "start", "#c0392b")]


def bars() -> list[str]:
    """A group of bars per width, a bar per block size, its speedup above it."""
    parts = []
    found = rows()
    widths = sorted({row["width"] for row in found})
    group = (WIDTH - LEFT - RIGHT) / len(widths)
    for place, width in enumerate(widths):
        members = [row for row in found if row["width"] == width]
        centre = LEFT + group * (place + 0.5)
        for index, row in enumerate(members):
            x = centre + (index - len(members) / 2) * (BAR_WIDTH + 6) + 3
            y = height_of(row["ratio"])
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{BAR_WIDTH}" height="{HEIGHT - BOTTOM - y:.1f}" '
                f'fill="{COLOURS[int(row["block"])]}"/>'
            )
            parts.append(text(x + BAR_WIDTH / 2, y - 6, f"{row['ratio']:.2f}x"))
        layers, tokens = members[0]["model"].split(", ")[1:]
        parts.append(text(centre, HEIGHT - BOTTOM + 18, f"d = {width}"))
        parts.append(text(centre, HEIGHT - BOTTOM + 34, f"{layers}, {tokens}", 11, fill="#57606a"))
    return parts


def legend() -> list[str]:
    """What the colours mean, and under which condition the figures hold."""
    parts = [text(LEFT, 20, "Training step of a transformer, 90 % block-sparse over dense", 15, "start")]
    condition = "One H200, bf16, AdamW, both compiled with CUDA graphs, fixed topology"
    parts.append(text(LEFT, 38, condition, 12, "start", "#57606a"))
    for index, (block, colour) in enumerate(COLOURS.items()):
        x = LEFT + 8 + index * 120
        parts.append(f'<rect x="{x}" y="{TOP + 2}" width="12" height="12" fill="{colour}"/>')
        parts.append(text(x + 18, TOP + 12, f"blocks of {block}", 12, "start"))
    return parts


def draw() -> str:
    """The picture as SVG."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" role="img" aria-label="Speedup of 90 % block-sparse training steps">'
    )
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    record = "docs/results/kernels-h200.json"
    source = text(WIDTH - RIGHT, HEIGHT - 8, f"drawn from {record}", 10, "end", "#57606a")
    return "\n".join([head, background, *axes(), *bars(), *legend(), source, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw())
