"""Reading the log of a run while it is written, after a crash, and over several processes."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

import acf
from acf.errors import FileError
from acf.metrics.run_history import MOST_MOVES, RunReader
from acf.metrics.run_log import LOG_FILE
from acf.train import LayerFigures


def test_a_reader_follows_a_run_to_its_end(tmp_path: Path) -> None:
    log = acf.RunLog(tmp_path, total_steps=4, every=1)
    reader = RunReader(tmp_path)
    log.step(1, 0.5)
    log.step(2, 0.25)
    history = reader.update()
    assert (history.state, history.step) == ("running", 2)
    assert history.step_seconds is not None
    assert history.remaining_seconds == pytest.approx(2 * history.step_seconds)
    log.step(3, 0.125)
    assert [point.loss for point in reader.update().steps] == [0.5, 0.25, 0.125]
    log.close()
    assert reader.update().state == "finished"
    assert reader.update().remaining_seconds is None


def test_half_a_line_waits_for_its_other_half_and_a_torn_one_is_counted(tmp_path: Path) -> None:
    with acf.RunLog(tmp_path, every=1) as log:
        log.step(1, 0.5)
    path = tmp_path / LOG_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    reader = RunReader(tmp_path)
    assert reader.update().outcome == ""
    path.write_bytes(whole)
    assert reader.update().outcome == "finished"
    path.write_bytes(whole[:-20])  # a machine that lost power; then the run is resumed
    with acf.RunLog(tmp_path, every=1) as log:
        log.step(2, 0.25)
    history = RunReader(tmp_path).update()
    assert [point.step for point in history.steps] == [1, 2]
    assert (history.damaged_lines, history.sessions, history.state) == (1, 2, "finished")


@pytest.mark.parametrize("change", [("step", "1e999"), ("seconds", "1e999"), ("accuracy", '{"a": 1}'), ("loss", '"x"')])
def test_a_line_with_anything_but_finite_numbers_is_left_out(tmp_path: Path, change: tuple[str, str]) -> None:
    with acf.RunLog(tmp_path, every=1) as log:
        log.step(1, 0.5, accuracy=0.25)
    path, (name, value) = tmp_path / LOG_FILE, change
    path.write_text(re.sub(rf'("{name}":)(?!\[)[-\d.e]+', rf"\g<1>{value}", path.read_text()))
    history = RunReader(tmp_path).update()
    assert (history.damaged_lines, history.steps) == (1, [])


def test_a_resumed_run_takes_the_place_of_what_it_repeats_and_its_clock_goes_on(tmp_path: Path) -> None:
    for steps in (range(1, 7), range(4, 9)):
        with acf.RunLog(tmp_path, every=1) as log:
            for step in steps:
                log.step(step, float(steps.start))
    points = RunReader(tmp_path).update().steps
    assert [point.step for point in points] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [point.loss for point in points] == [1.0] * 3 + [4.0] * 5
    assert all(before.seconds <= after.seconds for before, after in pairwise(points))


def test_many_moves_are_thinned_out_and_the_first_and_last_stay(tmp_path: Path) -> None:
    with acf.RunLog(tmp_path) as log:
        for step in range(1, MOST_MOVES + 50):
            log(step, [LayerFigures(step, "fc", density=0.25, flip_rate=0.1, explored=0.3)])
    moves = RunReader(tmp_path).update().moves
    assert len(moves) <= MOST_MOVES
    assert (moves[0].step, moves[-1].step) == (0, MOST_MOVES + 49)
    assert moves[-1].sparsity == 0.75
    assert moves[-1].flip_rate == pytest.approx(0.1)


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="pass the folder that a training run gave"):
        RunReader(tmp_path).update()


@pytest.mark.parametrize("layers", ["3.5", '{"fc": 3.5}', '{"fc": {"flip_rate": "much"}}', "null"])
def test_a_move_without_figures_by_layer_is_counted_as_damaged(tmp_path: Path, layers: str) -> None:
    start = '{"kind": "start", "time": 1.0, "total_steps": 4, "energy_source": "", "masks": {}}\n'
    move = f'{{"kind": "move", "time": 2.0, "step": 1, "flips": {{}}, "layers": {layers}}}\n'
    good = '{"kind": "move", "time": 3.0, "step": 2, "flips": {}, "layers": {"fc": {"flip_rate": 0.5}}}\n'
    (tmp_path / LOG_FILE).write_text(start + move + good)
    history = RunReader(tmp_path).update()
    assert (history.damaged_lines, [each.flip_rate for each in history.moves if each.figures]) == (1, [0.5])
