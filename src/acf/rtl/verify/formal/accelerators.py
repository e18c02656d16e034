"""Properties of the accelerators' units."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib.wiring import Component, In, Out

from acf.rtl.design.accelerators.tensordash_scheduler import NARROW, ScheduleLogic, SchedulerSpec


class EachPairOnce(Component):
    """The scheduler takes effectual pairs alone, each by one lane, leaves the rest, and always drains a step.

    What is taken is read off ``select`` and ``taken`` as a PE's multiplexers do.
    """

    def __init__(self, spec: SchedulerSpec = NARROW) -> None:
        self.spec = spec
        super().__init__({"staged": In(spec.staged_bits), "holds": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Decode every lane's choice and compare with what is left."""
        m = Module()
        spec, width = self.spec, self.spec.select_bits
        m.submodules.logic = logic = ScheduleLogic(spec)
        m.d.comb += logic.staged.eq(self.staged)
        claims: list[list[Value]] = [[] for _ in range(spec.staged_bits)]
        for lane in range(spec.lanes):
            for option, place in enumerate(spec.places(lane)):
                chosen = logic.select[lane * width : (lane + 1) * width] == option
                claims[place].append(logic.taken[lane] & chosen)
        checks = [logic.drained != 0, (logic.left & ~self.staged) == 0]
        for place, takers in enumerate(claims):
            once = Cat(*(takers[one] & takers[other] for one in range(len(takers)) for other in range(one)))
            gone = self.staged[place] & ~logic.left[place]
            checks += [~once.any(), Cat(*takers).any() == gone]
        m.d.comb += self.holds.eq(Cat(*checks).all())
        return m
