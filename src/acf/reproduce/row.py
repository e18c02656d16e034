"""A row: the published figures of one claim, ours, the tolerances, and the verdict."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """One figure: ``ours`` must lie in ``[low, high]``; ``paper`` and ``tolerance`` are for people."""

    what: str
    paper: str
    ours: float
    low: float
    high: float
    tolerance: str

    @property
    def within(self) -> bool:
        """Whether our figure lies in the tolerance."""
        return self.low <= self.ours <= self.high


@dataclass(frozen=True)
class Row:
    """A claim, how it is checked (``set_up``), and its checks; ``because`` says why there are none."""

    claim: str
    set_up: str
    checks: tuple[Check, ...] = ()
    because: str = ""

    @property
    def reproducible(self) -> bool:
        """Whether the claim can be checked here at all."""
        return not self.because

    @property
    def within(self) -> bool:
        """Whether every figure lies in its tolerance."""
        return all(check.within for check in self.checks)

    @property
    def verdict(self) -> str:
        """One line: reproduced, out of tolerance, or why it cannot be checked."""
        if self.because:
            return f"not reproducible here, because {self.because}"
        return "reproduced" if self.within else "out of tolerance"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        checks = [vars(check) | {"within": check.within} for check in self.checks]
        return {"claim": self.claim, "set_up": self.set_up, "checks": checks, "verdict": self.verdict}


def relative(what: str, paper: float, ours: float, tolerance: float, unit: str = "") -> Check:
    """Ours within ``tolerance`` times the paper's figure.

    >>> relative("speedup", 2.0, 2.1, 0.05).within
    True
    """
    margin = abs(paper) * tolerance
    return Check(what, f"{paper:g}{unit}", ours, paper - margin, paper + margin, f"{tolerance:.2%}".replace(".00", ""))


def absolute(what: str, paper: float, ours: float, tolerance: float, unit: str = "") -> Check:
    """Ours within ``tolerance`` of the paper's figure, in its own unit."""
    return Check(what, f"{paper:g}{unit}", ours, paper - tolerance, paper + tolerance, f"{tolerance:g}{unit}")


def at_most(what: str, limit: float, ours: float, unit: str = "") -> Check:
    """Ours at most ``limit`` and not below 0."""
    return Check(what, f"at most {limit:g}{unit}", ours, 0.0, limit, "bound")


def holds(what: str, truth: bool) -> Check:
    """A statement that is true (1) or not (0)."""
    return Check(what, "true", float(truth), 1.0, 1.0, "exact")
