"""Where two records of a run first differ."""

from dataclasses import replace

import numpy as np

from acf.rtl.verify.lockstep.record import Record, first_divergence


def test_a_divergence_names_port_place_and_cycle() -> None:
    events = {"send": [[0, 4]], "serial_arrival": [[8]], "parallel_arrival": [[]], "begin": [[8]], "end": [[9, 20]]}
    events |= {"leave": [[]], "empty": [[]]}
    model = Record(20, events, np.zeros((1, 7), dtype=np.int64), np.zeros((1, 1), dtype=np.uint32))
    late = replace(model, events=events | {"end": [[9, 21]], "begin": [[8, 30]]})
    assert str(first_divergence(model, late)) == (
        "end of SCU 0 differs in cycle 20: the model has number 1 in cycle 20, the fabric number 1 in cycle 21"
    )
    counted = replace(model, scu_cycles=model.scu_cycles + np.eye(1, 7, 3, dtype=np.int64))
    assert str(first_divergence(model, counted)) == "counter memory of SCU 0 differs: the model has 0, the fabric 1"
    other = replace(model, output=model.output + np.uint32(1))
    assert "value of output (0, 0) differs" in str(first_divergence(model, other))
    assert first_divergence(model, model) is None
