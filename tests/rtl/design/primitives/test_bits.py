"""Words that are chosen by number."""

import numpy as np
import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.primitives.bits import chosen_word, steered_word
from acf.rtl.tools.simulation import Simulation

WORDS = 8


class Choice(Component):
    """Word ``number`` of eight, each its own number plus 32, at once, and as it was when ``enable`` was last 1."""

    def __init__(self) -> None:
        super().__init__({"number": In(3), "enable": In(1), "now": Out(6), "kept": Out(6), "words": In(6 * WORDS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = [self.words[6 * number : 6 * number + 6] for number in range(WORDS)]
        m.d.comb += [
            self.now.eq(chosen_word(words, self.number)),
            self.kept.eq(steered_word(m, words, self.number, self.enable, "word")),
        ]
        return m


def test_a_word_is_chosen_by_its_number_and_a_steered_one_stays_while_it_is_not_enabled() -> None:
    rng = np.random.default_rng(0)
    number, enable = rng.integers(0, WORDS, 64), rng.integers(0, 2, 64)
    number[0], enable[0] = 5, 1
    words = sum((32 + place) << 6 * place for place in range(WORDS))
    inputs = {"number": number, "enable": enable, "words": np.full(64, words, dtype=np.uint64)}
    outputs = Simulation(Choice(), backend="pysim").run(inputs)
    assert np.array_equal(outputs["now"], 32 + number)
    latest = [int(number[: cycle + 1][enable[: cycle + 1] == 1][-1]) for cycle in range(64)]
    assert np.array_equal(outputs["kept"][1:], 32 + np.array(latest[:-1]))
