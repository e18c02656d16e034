"""The tables of `acf bench pong`."""

from rich.table import Table

from acf.bench.pong.record import TARGET_SCORE, PongSummary
from acf.bench.pong.store import PongStore
from acf.bench.pong.systems import MOMENTS, SystemRow, system_rows
from acf.columns import SHARE, Column, Format, shown_in, si_format, terminal_table

_WHOLE = Format("{:,.0f}".format)
_SCORE = Format("{:+.1f}".format)
_NOT_MEASURED = Format("{:.4g}".format, absent="not measurable here")

_TIMES, _SCORES = "times", "scores"
RUNS: tuple[Column[PongSummary], ...] = (
    Column("variant", "variant", lambda row: row.variant),
    Column("runs", "seeds", lambda row: row.runs, Format(str), places=(_TIMES,)),
    Column(
        "frames_per_s",
        "frames/s",
        lambda row: row.frames_per_s,
        _WHOLE,
        "emulator frames, four for each action",
        places=(_TIMES,),
    ),
    Column("seconds", "seconds", lambda row: row.seconds, Format("{:.1f}".format), places=(_TIMES,)),
    Column("score", "score", lambda row: row.score, _SCORE, "mean over the last 100 episodes", places=(_SCORES,)),
    Column("score_deviation", "±", lambda row: row.score_deviation, Format("{:.1f}".format), places=(_SCORES,)),
    Column(
        "evaluation",
        "evaluated",
        lambda row: row.evaluation,
        _SCORE,
        "one episode in every game after training",
        places=(_SCORES,),
    ),
    Column(
        "seconds_to_target",
        f"s to {TARGET_SCORE:+.0f}",
        lambda row: row.seconds_to_target,
        Format("{:.1f}".format, absent="never"),
        places=(_SCORES,),
    ),
    Column("reached", "reached by", lambda row: f"{row.reached} of {row.runs}", places=(_SCORES,)),
    Column("peak_gib", "GiB", lambda row: row.peak_gib, Format("{:.1f}".format), places=(_TIMES,)),
    Column(
        "joules_per_step",
        "J/step",
        lambda row: row.joules_per_step,
        _NOT_MEASURED,
        "of playing and learning",
        places=(_TIMES,),
    ),
    Column("sparsity", "weights absent", lambda row: row.sparsity, SHARE, places=(_SCORES,)),
    Column("moves", "moves", lambda row: row.moves, _WHOLE, places=(_SCORES,)),
)
"""One row for each variant, in two tables."""

SYSTEM_ROWS: tuple[Column[SystemRow], ...] = (
    Column("variant", "variant", lambda row: row.variant),
    Column("machine", "machine", lambda row: row.machine),
    *(
        Column[SystemRow](
            f"utilization_{moment}",
            f"U {moment}",
            lambda row, moment=moment: row.utilization.get(moment),  # type: ignore[misc]
            SHARE,
        )
        for moment in MOMENTS
    ),
    Column("step_seconds", "step", lambda row: row.step_seconds, si_format("s")),
    Column("energy_j", "energy", lambda row: row.energy_j, si_format("J")),
)
"""One row for each variant and modelled machine."""


def pong_tables(store: PongStore) -> list[Table]:
    """Speed and energy of every variant; its score; then U of the modelled machines, where steps were simulated."""
    summaries = store.summaries()
    times = "frames: of the emulator, four for each action; seconds: playing and learning, which overlap"
    scores = "score: mean over the last 100 training episodes; evaluated: one episode in every game after training"
    tables = [
        terminal_table(shown_in(_TIMES, RUNS), summaries, "DQN on Pong: time and energy", times),
        terminal_table(shown_in(_SCORES, RUNS), summaries, "DQN on Pong: score", scores),
    ]
    rows = system_rows(store)
    if rows:
        title = f"A step of {rows[0].examples} captured transitions on modelled machines"
        tables.append(terminal_table(SYSTEM_ROWS, rows, title, section=lambda row: row.variant))
    return tables
