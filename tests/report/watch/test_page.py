"""The live view as a page: what it serves, and whom it refuses."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import acf
from acf.errors import FileError
from acf.metrics.run_history import MovePoint, RunHistory, RunReader, StepPoint
from acf.report.watch.page import MOST_PICTURES, MOST_POINTS, PICTURE_SIDE, page_server, page_values


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a page about a run of one step, called <b>."""
    with acf.RunLog(tmp_path / "<b>", every=1) as log:
        log.step(1, 0.5)
    with page_server(RunReader(tmp_path / "<b>")) as server:
        assert server.server_address[0] == "127.0.0.1"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def answer(port: int, path: str, host: str | None = None) -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path, headers={"Host": host} if host else {})
    return connection.getresponse()


def test_the_page_and_the_run_are_served_and_nothing_else(port: int) -> None:
    page = answer(port, "/")
    assert page.status == 200
    text = page.read().decode()
    assert '<h1 id="name">&lt;b&gt;</h1>' in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), "nothing comes from a network"
    run = json.loads(answer(port, "/run.json").read())
    assert (run["run"], run["state"], run["loss"]) == ("<b>", "finished", 0.5)
    assert run["curves"]["loss"] == [[1, 0.5]]
    assert answer(port, "/../log.jsonl").status == 404


def test_a_page_of_another_host_cannot_read_along(port: int) -> None:
    assert answer(port, "/run.json", f"localhost:{port}").status == 200
    for host in ("evil.example", f"evil.example:{port}", "0.0.0.0", f"127.0.0.1.evil.example:{port}"):
        refused = answer(port, "/run.json", host)
        assert refused.status == 403
        assert b"0.5" not in refused.read()


def test_what_is_sent_stays_small_however_long_the_run() -> None:
    steps = [StepPoint(step, 0.1 * step, 1.0, 2.0) for step in range(1, 5000)]
    mask = np.ones((300, 200), dtype=bool)
    moves = [MovePoint(step, {"fc": {"flip_rate": 0.1}}, {"fc": mask}) for step in range(150)]
    values = page_values(RunHistory("long", steps=steps, moves=moves))
    assert len(values["curves"]["loss"]) == MOST_POINTS
    assert values["curves"]["loss"][-1][0] == 4999
    assert values["curves"]["ms/step"][5][1] == pytest.approx(100)
    assert len(values["masks"]) == MOST_PICTURES
    picture = values["masks"][-1]["layers"]["fc"]
    assert (len(picture), len(picture[0]), picture[0][0]) == (PICTURE_SIDE, PICTURE_SIDE, 100)


def test_a_missing_log_and_a_bad_port_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        page_server(RunReader(tmp_path))
    acf.RunLog(tmp_path).close()
    with pytest.raises(FileError, match="port 700000 cannot be used"):
        page_server(RunReader(tmp_path), 700_000)
