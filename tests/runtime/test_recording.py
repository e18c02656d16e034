"""What was recorded is replayed: on the same Spec in the same time, on another in another."""

from pathlib import Path

import numpy as np
import pytest

from acf import runtime
from acf.rtl.design.fabric.shapes import SMALL_SHAPE
from acf.runtime.recording import Recording
from tests.runtime.products import FILTERS, SPARSE, STRIDED, random_operands, run


def small_run(device: runtime.Device) -> None:
    """Two products on the default stream, and a copy on another that waits for the first."""
    forward = device.compile(runtime.Product(phase="forward", rows=20, weight=SPARSE, name="fc"))
    run(device, forward, random_operands(forward))
    event, stream = device.event().record(), device.stream()
    device.host_work(1e-3)
    gradient = device.compile(runtime.Product(phase="input_grad", rows=2, weight=FILTERS, conv=STRIDED))
    run(device, gradient, random_operands(gradient))
    stream.wait(event)
    runtime.memcpy_async(device.malloc(64), runtime.HostBuffer(64), stream)
    runtime.launch(runtime.Program.empty(), (), stream)
    device.charge("d2d", runtime.Cost(2e-3), stream)


@pytest.fixture(scope="module")
def recorded() -> tuple[Recording, runtime.Usage]:
    device = runtime.Device("sim", SMALL_SHAPE)
    with runtime.record(device) as recording:
        small_run(device)
    return recording, device.timeline.usage()


def test_a_replay_on_the_same_spec_takes_the_same_time_and_energy(
    recorded: tuple[Recording, runtime.Usage], tmp_path: Path
) -> None:
    recording, usage = recorded
    recording.save(tmp_path / "run.acf")
    again = Recording.load(tmp_path / "run.acf").replay(runtime.Device("sim", SMALL_SHAPE))
    assert again.total_s == pytest.approx(usage.total_s)
    assert again.host_s == pytest.approx(usage.host_s)
    assert again.busy_s == pytest.approx(usage.busy_s)
    assert again.energy_j == pytest.approx(usage.energy_j)


def test_a_replay_on_another_machine_or_link_takes_another_time(recorded: tuple[Recording, runtime.Usage]) -> None:
    recording, usage = recorded
    slow = recording.replay(runtime.Device("sim", SMALL_SHAPE, link=runtime.HostLink(generation=3, lanes=1)))
    assert slow.busy_s["h2d"] > usage.busy_s["h2d"]
    assert slow.busy_s["d2h"] > usage.busy_s["d2h"]
    wide = recording.replay(runtime.Device("sim", "tensordash"))
    assert 0 < wide.busy_s["compute"] < usage.busy_s["compute"]
    assert recording.replay(runtime.Device("cpu")).busy_s["compute"] > 0


def test_equal_patterns_and_programs_are_kept_once() -> None:
    device = runtime.Device("sim", SMALL_SHAPE)
    program = device.compile(runtime.Product(phase="forward", rows=20, weight=SPARSE))
    with runtime.record(device) as recording:
        for _ in range(3):
            run(device, program, random_operands(program))
    assert [each.kind for each in recording.operations].count("launch") == 3
    assert (len(recording.programs), len(recording.patterns)) == (1, 3)
    run(device, program, random_operands(program))
    assert [each.kind for each in recording.operations].count("launch") == 3


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.acf"
    with pytest.raises(runtime.InvalidImageError, match="is no whole recording"):
        Recording.load(path)
    path.write_bytes(b"something else")
    with pytest.raises(runtime.InvalidImageError, match="is no whole recording"):
        Recording.load(path)
    from safetensors.numpy import save

    path.write_bytes(save({"a": np.zeros(1)}))
    with pytest.raises(runtime.InvalidImageError, match="pass a file that Recording"):
        Recording.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"program": 7}, "names programs or patterns that are not there"),
        ({"patterns": [0, 1, 99]}, "names programs or patterns that are not there"),
        ({"nbytes": -1}, "has a negative number of bytes"),
        ({"seconds": "long"}, "seconds is 'long' and no finite number"),
        ({"more": 1}, "more is no field of a RecordedOperation"),
    ],
)
def test_a_recording_with_values_that_do_not_fit_is_refused(
    tmp_path: Path, recorded: tuple[Recording, runtime.Usage], change: dict[str, object], message: str
) -> None:
    import json

    from safetensors import safe_open
    from safetensors.numpy import load, save

    path = tmp_path / "run.acf"
    recorded[0].save(path)
    with safe_open(path, framework="numpy") as file:
        ((key, text),) = file.metadata().items()
    header = json.loads(text)
    launch = next(each for each in header["operations"] if each["kind"] == "launch" and each["patterns"])
    launch |= change
    path.write_bytes(save(load(path.read_bytes()), metadata={key: json.dumps(header)}))
    with pytest.raises(runtime.InvalidImageError, match=message):
        Recording.load(path)
