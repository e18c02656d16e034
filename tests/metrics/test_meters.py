"""Meters of energy."""

from pathlib import Path

import pytest

from acf.metrics import meters
from acf.metrics.meters import EnergyMeter, EnergyReading


def rapl(folder: Path, energy_uj: int, limit_uj: int = 1_000_000) -> Path:
    package = folder / "intel-rapl:0"
    package.mkdir(exist_ok=True)
    (package / "energy_uj").write_text(str(energy_uj))
    (package / "max_energy_range_uj").write_text(str(limit_uj))
    return package / "energy_uj"


def test_rapl_energy_is_counted_across_its_wrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = rapl(tmp_path, energy_uj=900_000)
    monkeypatch.setattr(meters, "POWERCAP", tmp_path)
    with EnergyMeter("cpu", idle_seconds=0.0) as meter:
        counter.write_text("950000")
        assert meter.joules_so_far() == pytest.approx(0.05)
        counter.write_text("100000")
    assert meter.reading.joules == pytest.approx(0.2)
    assert meter.reading.source == "RAPL energy of all packages"


def test_where_nothing_can_be_measured_the_reading_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "POWERCAP", tmp_path)
    with EnergyMeter("cpu") as meter:
        assert meter.joules_so_far() is None
    assert meter.reading.joules is None
    assert meter.reading.active_joules is None
    assert meter.reading.source == "not measurable here: the system shows no RAPL counter"


def test_active_energy_leaves_the_idle_power_out() -> None:
    assert EnergyReading(seconds=2.0, joules=100.0, idle_watts=20.0, source="").active_joules == 60.0
