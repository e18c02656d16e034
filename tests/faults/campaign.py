"""Interrupt a workload at seeded moments, go on with it, and compare what is left with an uninterrupted run."""

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.child import KILLED, Ended, run_child
from tests.faults.disk import Fault
from tests.faults.records import difference, records_of
from tests.faults.workloads import OPTIONAL, Workload

MOST_KILLS_OF_A_RUN = 6
"""After so many, a run is left to end."""


@dataclass
class Findings:
    """What was done, and what should not have happened."""

    kills: int = 0
    full_disks: int = 0
    resumed_runs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Campaign:
    """The interruptions of one workload, in folders below ``folder``; ``findings`` collects them."""

    def __init__(self, name: str, workload: Workload, folder: Path, seed: int, findings: Findings) -> None:
        self.name, self.workload, self.folder, self.findings = name, workload, folder, findings
        self.random = Random(f"{name} {seed}")
        self.case = 0
        self.whole = self._uninterrupted("whole")
        self.expected = workload.compared(records_of(folder / "whole"))
        again = folder / "again"
        self._uninterrupted("again")
        if found := difference(self.expected, workload.compared(records_of(again))):
            raise AssertionError(f"{name}: two uninterrupted runs differ in {found}; nothing can be compared")
        shutil.rmtree(again)

    def kill(self, kills: int) -> None:
        """``kills`` kills, several in a row in one run: half after a random time, half within a change of a file."""
        while kills > 0:
            place, said = self._new_place(), []
            for _ in range(min(kills, self.random.randint(1, MOST_KILLS_OF_A_RUN))):
                moment, was_killed = self._kill_once(place)
                if not was_killed:
                    break
                said.append(moment)
            kills -= len(said)
            self._finish(place, f"{len(said)} kills ({', '.join(said)})")

    def fill_disk(self, cases: int) -> None:
        """``cases`` runs, each with a disk that is full at a random change: for good, or for this once."""
        for _ in range(cases):
            place, at = self._new_place(), self.random.randint(1, self.whole.changes)
            fault = self.random.choice((Fault.FULL_FROM, Fault.FULL_ONCE))
            ended = run_child(self.workload.work, place, at, fault)
            what = f"disk full at change {at} of {self.whole.changes}, {fault.name}"
            self.findings.full_disks += 1
            self._judge_full_disk(ended, what)
            self._finish(place, what, without=OPTIONAL)

    def _judge_full_disk(self, ended: Ended, what: str) -> None:
        """One line and exit code 2; or success, where what could not be written was not essential."""
        lines = [line for line in ended.errors.splitlines() if not line.startswith("acf: warning: ")]
        if ended.code == 2 and len(lines) == 1 and lines[0].startswith("acf: "):
            self.findings.outcomes["ended with one line"] += 1
        elif ended.code == 0 and not lines:
            self.findings.outcomes["went on"] += 1
        else:
            self.findings.wrong.append(f"{self.name}, {what}: exit code {ended.code}, {' | '.join(lines[-4:])[-500:]}")

    def _kill_once(self, place: Path) -> tuple[str, bool]:
        """Kill a run on its way: at which moment, in words, and whether it had not ended before."""
        if self.random.random() < 0.5:
            at = self.random.randint(1, self.whole.changes)
            ended = run_child(self.workload.work, place, at, Fault.KILL)
            moment = f"change {at}"
        else:
            after_s = self.random.uniform(0.0, self.whole.seconds)
            ended = run_child(self.workload.work, place, kill_after_s=after_s)
            moment = f"{after_s:.2f} s"
        if ended.code not in (0, KILLED):
            last = ended.errors.strip().splitlines()[-3:]
            self.findings.wrong.append(f"{self.name}, killed at {moment}: exit code {ended.code}, {' | '.join(last)}")
        self.findings.kills += ended.code == KILLED
        return moment, ended.code == KILLED

    def _finish(self, place: Path, what: str, without: tuple[str, ...] = ()) -> None:
        """Go on to the end, and compare all records but those of the names ``without``."""
        ended = run_child(self.workload.work, place)
        self.findings.resumed_runs += 1
        if ended.code != 0:
            last = ended.errors.strip().splitlines()[-4:]
            self.findings.wrong.append(f"{self.name} after {what}: exit code {ended.code}, {' | '.join(last)}")
            return
        pair = (self.expected, self.workload.compared(records_of(place)))
        if differs := difference(*(_without(records, without) for records in pair)):
            self.findings.wrong.append(f"{self.name} after {what}: {differs}")
        else:
            shutil.rmtree(place)

    def _uninterrupted(self, name: str) -> Ended:
        ended = run_child(self.workload.work, self.folder / name)
        if ended.code != 0:
            raise AssertionError(f"{self.name} fails without any fault: {ended.errors[-2000:]}")
        return ended

    def _new_place(self) -> Path:
        self.case += 1
        return self.folder / f"case{self.case}"


def _without(records: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {path: content for path, content in records.items() if Path(path).name not in names}
