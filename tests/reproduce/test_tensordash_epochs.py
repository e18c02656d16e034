"""Row T14: the shape of the curve over training, and the record it rests on."""

import pytest

from acf.reproduce.tensordash_epochs import curve_shape, t14, vgg_record


def test_the_shape_tells_an_overturned_u_from_other_curves() -> None:
    epochs = tuple(range(13))
    overturned = curve_shape(epochs, (1.5, 1.8, 2.0, 2.1, 2.1, 2.1, 2.1, 2.0, 1.9, 1.9, 1.9, 1.9, 1.9))
    assert overturned.start_of_peak < 0.99
    assert overturned.peak_at == pytest.approx(0.25)
    assert overturned.end_of_peak == pytest.approx(1.9 / 2.1)
    assert overturned.last_of_third == 0
    rising = curve_shape(epochs, tuple(1.0 + 0.1 * epoch for epoch in epochs))
    assert rising.peak_at == 1.0
    assert rising.least_of_most < 0.8
    assert rising.last_of_third == pytest.approx(1.0)
    flat = curve_shape(epochs, (2.0,) * 13)
    assert flat.start_of_peak == flat.end_of_peak == 1.0


def test_the_row_rests_on_a_record_that_says_where_it_comes_from() -> None:
    record = vgg_record()
    assert record.epochs[0] == 0
    assert len(record.epochs) == len(record.speedups) > 20
    for part in (record.source, record.command, record.machine, record.date):
        assert len(part) > 5
        assert part in t14().set_up
