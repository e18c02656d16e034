"""Timelines: valid trace events, true times, a bounded file that says what it leaves out, and the heat map."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import acf
import acf.runtime
from acf.errors import ArchitectureError, ReportError
from acf.report.timeline import Timeline, fair_shares, save_device_timeline
from acf.report.timeline.colours import TRACE_COLOURS
from acf.report.timeline.device_tracks import DEVICE, ENGINE_TRACKS, HOST
from acf.report.timeline.fabric_tracks import CHANNELS, IMCS, LINKS, SCUS
from acf.report.timeline.occupancy import occupancy_of
from acf.report.timeline.step_tracks import BREAKDOWN, DRAM, PRODUCTS, VECTOR
from acf.sim import ARCHITECTURES
from acf.sim.fabric.record_op import has_events
from acf.sim.fabric.traffic import REASONS
from acf.trace import VectorOp

PHASES = ("forward", "weight_grad", "input_grad")


def small_step() -> acf.Trace:
    random = np.random.default_rng(0)
    a, b = random.random((96, 128)) < 0.4, np.kron(random.random((8, 6)) < 0.5, np.ones((16, 16)))
    plain = acf.Trace.from_matmuls([acf.Matmul("fc", phase, a, b) for phase in PHASES], label="small")
    vector_ops = (VectorOp("fc", "batch_norm", "forward", 4096, 1), VectorOp("fc", "relu", "forward", 4096, 1))
    return acf.Trace(plain.ops, plain.tensors, label="small", vector_ops=vector_ops)


def recorded(name: str, limit_bytes: int = 16_000_000, scu_tracks: int = 8) -> Timeline:
    timeline = acf.Timeline(limit_bytes, scu_tracks)
    acf.simulate(small_step(), name, timeline=timeline)
    return timeline


def saved(timeline: Timeline, folder: Path) -> dict[str, Any]:
    timeline.save(folder / "step.json")
    return strictly_read(folder / "step.json")


def strictly_read(path: Path) -> dict[str, Any]:
    """The file as a reader takes it that knows no NaN and no key twice."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), f"a key stands twice in {pairs}"
        return dict(pairs)

    values: dict[str, Any] = json.loads(path.read_text(), parse_constant=refuse, object_pairs_hook=unique)
    return values


def slices(file: dict[str, Any], process: int, thread: int | None = None) -> list[dict[str, Any]]:
    events = [event for event in file["traceEvents"] if event["ph"] == "X" and event["pid"] == process]
    return events if thread is None else [event for event in events if event["tid"] == thread]


KEYS = {
    "X": ({"name", "ph", "ts", "dur", "pid", "tid"}, {"cname", "args"}),
    "C": ({"name", "ph", "ts", "pid", "args"}, set()),
    "M": ({"name", "ph", "ts", "pid", "tid", "args"}, set()),
}
"""Keys that an event of each phase must have, and may have."""


def check_trace_events(file: dict[str, Any]) -> None:
    """The rules of the trace-event format that Perfetto and chrome://tracing rely on."""
    assert set(file) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert file["displayTimeUnit"] in {"ns", "ms"}
    named, used, last = set(), set(), 0.0
    spans = defaultdict(list)
    for event in file["traceEvents"]:
        must, may = KEYS[event["ph"]]
        assert must <= set(event) <= must | may
        assert isinstance(event["name"], str)
        assert all(type(event[key]) is int and 0 <= event[key] < 2**31 for key in ("pid", "tid") if key in event)
        assert event["pid"] > 0, "viewers take process 0 for the idle task"
        assert all(type(event[key]) in (int, float) for key in ("ts", "dur") if key in event)
        assert abs(1000 * event["ts"] - round(1000 * event["ts"])) < 1e-3, "stamps are whole nanoseconds"
        assert event["ts"] >= last, "events are sorted"
        last = event["ts"]
        if event["ph"] == "M":
            kinds = {"process_name": str, "thread_name": str, "process_sort_index": int, "thread_sort_index": int}
            (value,) = event["args"].values()
            assert isinstance(value, kinds[event["name"]])
            named.add((event["pid"], event["tid"]) if event["name"] == "thread_name" else (event["pid"], None))
        elif event["ph"] == "C":
            assert event["args"]
            assert all(type(value) in (int, float) for value in event["args"].values())
            used.add((event["pid"], None))
        else:
            assert event["dur"] >= 0
            assert event["name"]
            spans[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
            used |= {(event["pid"], None), (event["pid"], event["tid"])}
    assert used <= named, "every track and every group has a name"
    for track, members in spans.items():
        check_nesting(track, sorted(members))


def check_nesting(track: tuple[int, int], spans: list[tuple[float, float]]) -> None:
    """Slices of one track lie inside or beside each other, in whole nanoseconds."""
    open_until: list[int] = []
    for stamp, negative in spans:
        start, end = round(1000 * stamp), round(1000 * stamp) + round(-1000 * negative)
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert not open_until or end <= open_until[-1], f"slices of {track} overlap at {stamp}"
        open_until.append(end)


@pytest.mark.parametrize("name", ["acf-512", "tensordash-512", "sat", "spartann", "gpu-v100"])
def test_a_timeline_is_valid_and_has_every_product_and_vector_operation(name: str, tmp_path: Path) -> None:
    timeline = recorded(name)
    file = saved(timeline, tmp_path)
    check_trace_events(file)
    products = slices(file, PRODUCTS.process, PRODUCTS.thread)
    assert [event["name"] for event in products] == [f"fc {phase}" for phase in PHASES]
    assert [event["args"]["cycles"] for event in products] == [op.cycles for op in timeline.result.ops]
    names = {event["name"] for event in slices(file, VECTOR.process, VECTOR.thread)}
    assert any("relu" in each for each in names)
    end_us = max(event["ts"] + event.get("dur", 0) for event in file["traceEvents"])
    assert end_us == pytest.approx(1e6 * timeline.result.step_seconds, rel=0.01, abs=0.01)
    assert {event["name"] for event in file["traceEvents"] if event["ph"] == "C"} >= {"U (%)", "DRAM (GB/s)"}


def test_recording_changes_no_figure() -> None:
    assert recorded("acf-512").result.to_dict() == acf.simulate(small_step(), "acf-512").to_dict()


def test_states_of_a_sampled_scu_are_what_the_engine_accounts_for() -> None:
    timeline = recorded("acf-512", scu_tracks=512)
    lanes = timeline.result.macs_per_cycle // 512
    for op in timeline.ops:
        (product,) = op.products
        states = product.recording.states
        by_reason = {
            name: int((states[:, 3] - states[:, 2])[states[:, 1] == i].sum()) for i, name in enumerate(REASONS)
        }
        assert sum(by_reason.values()) == 512 * product.recording.cycles
        for reason in ("scan", "mesh", "imbalance", "drain"):
            assert by_reason[reason] * lanes == op.result.lost_slots[reason]


def test_tracks_of_a_fabric_follow_packets_and_dram(tmp_path: Path) -> None:
    timeline = recorded("acf-512")
    file = saved(timeline, tmp_path)
    assert {event["name"] for event in slices(file, SCUS)} & {"work"}
    assert all(event["name"].startswith("wait: ") for event in slices(file, IMCS))
    links = slices(file, LINKS)
    assert {event["name"] for event in links} == {"serial tile", "parallel tile"}
    carried = sum(op.products[0].recording.carried.sum() for op in timeline.ops)
    assert sum(event["args"]["flits"] for event in links) == carried
    assert slices(file, CHANNELS)
    assert slices(file, DRAM.process, DRAM.thread)


def test_stalls_have_the_colour_of_their_reason_and_every_reason_has_one(tmp_path: Path) -> None:
    reasons = {
        reason for name in ARCHITECTURES for op in acf.simulate(small_step(), name).ops for reason in op.lost_slots
    }
    assert reasons | set(REASONS) | {"effectual"} <= set(TRACE_COLOURS)
    for event in slices(saved(recorded("acf-512"), tmp_path), BREAKDOWN.process, BREAKDOWN.thread):
        assert event["cname"] == TRACE_COLOURS[event["name"]]


def test_a_small_limit_keeps_the_file_small_and_says_what_is_left_out(tmp_path: Path) -> None:
    timeline = recorded("acf-512", limit_bytes=150_000, scu_tracks=512)
    written = timeline.save(tmp_path / "step.json")
    file = json.loads((tmp_path / "step.json").read_text())
    check_trace_events(file)
    assert written.file_bytes == (tmp_path / "step.json").stat().st_size <= 150_000
    assert written.complete_products < written.products == 3
    assert 0 < written.shown_share < 1
    assert file["otherData"]["share_of_cycles_shown_by_events"] == round(written.shown_share, 4)
    assert f"{written.complete_products} of 3 products" in written.sentence


def test_room_that_one_product_does_not_need_goes_to_the_others() -> None:
    assert fair_shares([5, 1000, 1000], 605) == [5, 300, 300]
    assert fair_shares([5, 10], 605) == [5, 10]


def test_occupancy_adds_up_to_the_work_that_was_done(tmp_path: Path) -> None:
    timeline = recorded("acf-512")
    assert timeline.fabric is not None
    occupancy = occupancy_of(timeline, timeline.fabric)
    busy = sum(product.recording.busy.sum() for op in timeline.ops for product in op.products)
    assert occupancy.clusters.sum() * occupancy.bin_cycles * 8 == pytest.approx(busy)
    assert 0 < occupancy.clusters.max() <= 1 + 1e-9
    assert 0 < occupancy.links.max() <= 1 + 1e-9
    drawing = ElementTree.parse(timeline.save_heat_map(tmp_path / "map.svg")).getroot()
    assert drawing.get("aria-label") == "small on acf-512: occupancy over time"


def test_a_trace_without_vector_work_is_drawn_one_product_after_another(tmp_path: Path) -> None:
    timeline = acf.Timeline()
    result = acf.simulate(small_step().without_vector_work(), "acf-512", timeline=timeline)
    file = saved(timeline, tmp_path)
    check_trace_events(file)
    products = slices(file, PRODUCTS.process, PRODUCTS.thread)
    assert [after["ts"] - before["ts"] for before, after in pairwise(products)] == pytest.approx(
        [1e6 * op.cycles / result.clock_hz for op in result.ops[:-1]], abs=0.002
    )


def test_misuse_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ArchitectureError, match="holds no step"):
        acf.Timeline().save(tmp_path / "step.json")
    with pytest.raises(ReportError, match="limit_bytes 10 is below"):
        acf.Timeline(limit_bytes=10)
    timeline = recorded("tensordash-512")
    with pytest.raises(ReportError, match="tensordash-512 is not simulated by events"):
        timeline.save_heat_map(tmp_path / "map.svg")
    with pytest.raises(ArchitectureError, match="holds a step already"):
        acf.simulate(small_step(), "tensordash-512", timeline=timeline)


def test_batched_products_that_repeat_are_recorded_once_and_counted_every_time() -> None:
    random = np.random.default_rng(1)
    a = np.concatenate([np.repeat(random.random((1, 16, 16)) < 0.5, 128, axis=0), random.random((8, 16, 16)) < 0.5])
    tensors = {"a": acf.trace.BitTensor.from_array(a), "b": acf.trace.BitTensor.from_array(np.ones((136, 16, 16)))}
    op = acf.trace.TracedOp("scores", "forward", "a", "b", batched=True, weighted=False)
    timeline = acf.Timeline()
    acf.simulate(acf.Trace([op], tensors), "acf-512", timeline=timeline)
    first, again, rest = timeline.ops[0].products
    assert len(first.recording.states) > 0 == len(again.recording.states)
    assert again.recording.busy.sum() == first.recording.busy.sum() != rest.recording.busy.sum()
    assert again.start > first.start


@pytest.mark.parametrize("changes", [{"memory_model": "rate"}, {"index_controllers": 4}, {"skip": "both"}])
def test_every_fabric_of_the_event_engine_is_recorded_to_the_cycle(changes: dict[str, Any], tmp_path: Path) -> None:
    timeline = acf.Timeline(scu_tracks=4)
    result = acf.simulate(small_step(), acf.sim.spec("acf-512", **changes), timeline=timeline)
    check_trace_events(saved(timeline, tmp_path))
    for op, played in zip(timeline.ops, result.ops, strict=True):
        (product,) = op.products
        assert product.set_up_cycles >= 0
        assert product.first_cycle + product.recording.cycles <= played.cycles


def test_only_fabrics_of_the_event_engine_are_recorded_by_events() -> None:
    assert has_events(acf.sim.spec("acf-512"))
    assert has_events(acf.sim.spec("acf-512", engine="exact", memory_model="rate"))
    assert not has_events(acf.sim.spec("acf-512", engine="exact"))
    assert not has_events(acf.sim.spec("acf-512", interconnect="packet"))


def offloaded() -> acf.runtime.Device:
    """A device that has trained a small model for two steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    device = acf.runtime.Device("sim", "acf-512", link=acf.runtime.HostLink(generation=4, lanes=16))
    with acf.offload(model, device, keep_timeline=True):
        for _ in range(2):
            model(torch.randn(16, 32)).square().mean().backward()
    return device


def test_a_run_on_a_device_shows_host_copies_products_and_host_work(tmp_path: Path) -> None:
    device = offloaded()
    written = save_device_timeline(device.timeline, tmp_path / "run.json", title="two steps")
    file = strictly_read(tmp_path / "run.json")
    check_trace_events(file)
    assert written.shown == written.operations == len(device.timeline.spans) + len(device.timeline.host_spans)
    for engine, (track, _) in ENGINE_TRACKS.items():
        spans = [span for span in device.timeline.spans if span.engine == engine]
        drawn = slices(file, DEVICE, track.thread)
        assert sum(event["args"].get("bytes", 0) for event in drawn) == sum(span.nbytes for span in spans)
        assert [event["ts"] for event in drawn] == pytest.approx(sorted(1e6 * span.start_s for span in spans), abs=1e-3)
    assert slices(file, DEVICE, ENGINE_TRACKS["h2d"][0].thread)
    assert slices(file, DEVICE, HOST.thread)
    assert "copies, host to device (GB/s)" in {event["name"] for event in file["traceEvents"] if event["ph"] == "C"}


def test_the_timeline_of_a_device_is_cut_at_its_limit_and_says_so(tmp_path: Path) -> None:
    written = save_device_timeline(offloaded().timeline, tmp_path / "run.json", limit_bytes=8000)
    assert (tmp_path / "run.json").stat().st_size == written.file_bytes <= 8000
    assert 0 < written.shown < written.operations
    assert written.sentence.startswith(f"the first {written.shown} of {written.operations} operations")
    check_trace_events(strictly_read(tmp_path / "run.json"))


def test_a_device_that_did_nothing_has_no_timeline(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="holds no operation"):
        save_device_timeline(acf.runtime.Device("sim", "acf-512").timeline, tmp_path / "run.json")
