"""Plot of the achieved gradient sparsity as a small SVG file, readable on light and on dark pages."""

from collections.abc import Sequence

from acf.bench.tracking.recording import Tracked

WIDTH_PX, HEIGHT_PX = 760, 320
LEFT_PX, RIGHT_PX, TOP_PX, BOTTOM_PX = 48, 120, 16, 40
POINTS = 300
COLOURS = ("#1a80c4", "#e69f00", "#009e73", "#cc79a7", "#d55e00")
INK = "#777777"


def tracking_svg(runs: Sequence[Tracked]) -> str:
    """Mean fraction of zeros of each run over the steps; the target is dashed."""
    target = runs[0].target
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {HEIGHT_PX}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        *(_rule(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
        f'<line x1="{LEFT_PX}" x2="{WIDTH_PX - RIGHT_PX}" y1="{_y(target):.1f}" y2="{_y(target):.1f}" '
        f'stroke="{INK}" stroke-dasharray="6 4"/>',
    ]
    for index, run in enumerate(runs):
        parts += _curve(run, COLOURS[index % len(COLOURS)])
    steps = len(runs[0].means())
    middle = (LEFT_PX + WIDTH_PX - RIGHT_PX) / 2
    parts += [
        f'<text x="{LEFT_PX}" y="{HEIGHT_PX - 18}">1</text>',
        f'<text x="{WIDTH_PX - RIGHT_PX}" y="{HEIGHT_PX - 18}" text-anchor="end">{steps}</text>',
        f'<text x="{middle}" y="{HEIGHT_PX - 6}" text-anchor="middle">training step</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _curve(run: Tracked, colour: str) -> list[str]:
    shares = run.means()
    stride = max(1, len(shares) // POINTS)
    chosen = range(0, len(shares), stride)
    span = max(1, len(shares) - 1)
    points = " ".join(
        f"{LEFT_PX + (WIDTH_PX - LEFT_PX - RIGHT_PX) * step / span:.1f},{_y(shares[step]):.1f}" for step in chosen
    )
    return [
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
        f'<text x="{WIDTH_PX - RIGHT_PX + 6}" y="{_y(shares[-1]) + 4:.1f}" fill="{colour}">{run.method}</text>',
    ]


def _rule(share: float) -> str:
    y = _y(share)
    return (
        f'<line x1="{LEFT_PX}" x2="{WIDTH_PX - RIGHT_PX}" y1="{y:.1f}" y2="{y:.1f}" stroke="{INK}" opacity="0.25"/>'
        f'<text x="{LEFT_PX - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
    )


def _y(share: float) -> float:
    return TOP_PX + (1.0 - share) * (HEIGHT_PX - TOP_PX - BOTTOM_PX)
