"""A row: the published figures of one claim, ours, the tolerances, and a label that says what a match is worth."""

from dataclasses import dataclass, replace
from typing import Any

REPRODUCED = "reproduced"
CONSISTENT = "consistent with its inputs"
MEASURED = "measured, no tolerance"
MISSED = "missed"
NOT_HERE = "not reproducible here"


@dataclass(frozen=True)
class Check:
    """One figure: ``ours`` must lie in ``[low, high]``; ``paper`` and ``tolerance`` are for people.

    ``from_inputs``: ours is arithmetic on figures of the same publication, so that a match confirms the arithmetic and
    nothing else. ``known_miss`` says why a figure out of tolerance is published all the same. Without a ``tolerance``
    the figure is only reported. ``published`` is the paper's figure where it is a single number.
    """

    what: str
    paper: str
    ours: float
    low: float
    high: float
    tolerance: str
    from_inputs: bool = False
    known_miss: str = ""
    published: float | None = None

    @property
    def within(self) -> bool:
        """Whether our figure lies in the tolerance."""
        return self.low <= self.ours <= self.high

    @property
    def accepted(self) -> bool:
        """Whether our figure lies in the tolerance, or is known to miss it."""
        return self.within or bool(self.known_miss)

    @property
    def label(self) -> str:
        """What the figure is worth: reproduced, consistent with its inputs, missed (by how much), or only measured."""
        if not self.tolerance:
            return MEASURED
        if self.within:
            return CONSISTENT if self.from_inputs else REPRODUCED
        bound, side = (self.low, "below") if self.ours < self.low else (self.high, "above")
        expected, of_what = (self.published, "the paper") if self.published else (bound, "the bound")
        error = f"{abs(self.ours / expected - 1):.0%}" if expected else f"{abs(self.ours):.3g}"
        return f"{MISSED}: {error} {side} {of_what}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, which has no infinite bounds."""
        bounds = {"low": None, "high": None} if not self.tolerance else {}
        return vars(self) | bounds | {"within": self.within, "label": self.label}


@dataclass(frozen=True)
class Row:
    """A claim, how it is checked (``set_up``), and its checks; ``because`` says why there are none.

    ``rests_on`` names what a reader must know before quoting the row: a fitted or assumed parameter, a substituted
    input, a bound that was replaced.
    """

    claim: str
    set_up: str
    checks: tuple[Check, ...] = ()
    because: str = ""
    rests_on: str = ""

    @property
    def reproducible(self) -> bool:
        """Whether the claim can be checked here at all."""
        return not self.because

    @property
    def accepted(self) -> bool:
        """Whether every figure lies in its tolerance or is known to miss it."""
        return all(check.accepted for check in self.checks)

    @property
    def label(self) -> str:
        """The labels of the checks, each once; or that the claim cannot be checked here."""
        kinds = [check.label.partition(":")[0] for check in self.checks]
        return NOT_HERE if self.because else "; ".join(dict.fromkeys(kinds))

    @property
    def verdict(self) -> str:
        """The label, with the reason where the claim cannot be checked."""
        return f"{NOT_HERE}, because {self.because}" if self.because else self.label

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        checks = [check.to_dict() for check in self.checks]
        texts = {"claim": self.claim, "set_up": self.set_up, "rests_on": self.rests_on}
        return texts | {"checks": checks, "label": self.label, "verdict": self.verdict}


def relative(what: str, paper: float, ours: float, tolerance: float, unit: str = "") -> Check:
    """Ours within ``tolerance`` times the paper's figure.

    >>> relative("speedup", 2.0, 2.1, 0.05).within
    True
    """
    margin = abs(paper) * tolerance
    text = f"{tolerance:.2%}".replace(".00", "")
    return Check(what, f"{paper:g}{unit}", ours, paper - margin, paper + margin, text, published=paper)


def absolute(what: str, paper: float, ours: float, tolerance: float, unit: str = "") -> Check:
    """Ours within ``tolerance`` of the paper's figure, in its own unit."""
    text = f"{tolerance:g}{unit}"
    return Check(what, f"{paper:g}{unit}", ours, paper - tolerance, paper + tolerance, text, published=paper)


def at_most(what: str, limit: float, ours: float, unit: str = "") -> Check:
    """Ours at most ``limit`` and not below 0."""
    return Check(what, f"at most {limit:g}{unit}", ours, 0.0, limit, "bound")


def holds(what: str, truth: bool) -> Check:
    """A statement that is true (1) or not (0)."""
    return Check(what, "true", float(truth), 1.0, 1.0, "exact")


def measured(what: str, paper: str, ours: float) -> Check:
    """A figure that is only reported: nothing says how near it must be."""
    return Check(what, paper, ours, float("-inf"), float("inf"), "")


def from_inputs(*checks: Check) -> tuple[Check, ...]:
    """``checks`` marked as arithmetic on figures of the same publication."""
    return tuple(replace(check, from_inputs=True) for check in checks)
