"""The plot of score curves."""

from acf.bench.pong.plot import pong_svg
from acf.bench.pong.record import ScorePoint


def point(variant: str, seed: int, frames: int, score: float | None) -> ScorePoint:
    return ScorePoint(variant, seed, frames, frames // 64, frames / 1e5, None, score, 100, 0.1, None)


def test_every_run_has_a_line_in_both_panels_from_its_first_score_on() -> None:
    points = [
        point(variant, seed, frames, None if frames == 10**6 else frames / 1e6)
        for variant in ("dense", "rigl-90/block=32")
        for seed in (0, 1)
        for frames in (10**6, 2 * 10**6, 3 * 10**6)
    ]
    drawn = pong_svg(points)
    curves = [line for line in drawn.splitlines() if line.startswith("<polyline") and "dasharray" not in line]
    assert len(curves) == 2 * 4
    assert all(line.split('"')[1].count(",") == 2 for line in curves)
    assert "rigl-90/block=32" in drawn


def test_a_record_without_scores_has_empty_panels() -> None:
    assert "<polyline" in pong_svg([point("dense", 0, 10**6, None)])  # the line of the target
