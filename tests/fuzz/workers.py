"""Cases of one door in a process of their own, so that one that hangs in compiled code, or crashes, is found too."""

import faulthandler
import json
import resource
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.case import Finding, run_case

LONGEST_SECONDS = 300.0
"""Of wall time, after which a case hangs: on a busy machine, its processor time may take as long."""

COMMAND = ("-m", "tests.fuzz.workers")
"""What plays the cases; the door, the first seed, their number and the folder follow."""

MOST_ADDRESS_BYTES = 6 << 30
"""What a process may map beyond what it has mapped before its first case."""


def play_door(name: str, seeds: range, folder: Path) -> list[Finding]:
    """The findings among the cases of these seeds; a process that dies is replaced for the seeds after."""
    findings: list[Finding] = []
    while seeds:
        with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryFile("w+") as output:
            command = [sys.executable, *COMMAND, name, str(seeds[0]), str(len(seeds)), str(folder)]
            code = subprocess.run(command, stdout=output, stderr=errors, check=False).returncode
            output.seek(0)
            errors.seek(0)
            lines = [json.loads(line) for line in output if line.startswith('{"seed"')]
            last_words = [line.strip() for line in errors if line.strip()][:3]
        findings += [Finding(**line["finding"]) for line in lines if line.get("finding")]
        if code == 0:
            return findings
        begun = [line["seed"] for line in lines]
        died = begun[-1] if begun else seeds[0]
        findings.append(Finding(name, died, f"its process ended with {code}: {' '.join(last_words)}"))
        seeds = range(died + 1, seeds.stop)
    return findings


def play_here(name: str, seeds: range, folder: Path, tell: bool = False) -> list[Finding]:
    """The findings among the cases of these seeds, played in this process; ``tell`` writes each case to stdout."""
    from tests.fuzz.doors import DOORS

    place = folder / name
    place.mkdir(exist_ok=True)
    findings = []
    stdout = sys.__stdout__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            if tell and stdout is not None:
                print(json.dumps({"seed": seed}), flush=True, file=stdout)
                faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
            found = run_case(name, DOORS[name], seed, place)
            faulthandler.cancel_dump_traceback_later()
            if found is not None:
                findings.append(found)
                if tell and stdout is not None:
                    print(json.dumps({"seed": seed, "finding": asdict(found)}), flush=True, file=stdout)
    return findings


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> None:
    """``python -m tests.fuzz.workers NAME FIRST COUNT FOLDER``."""
    name, first, count, folder = sys.argv[1:]
    from tests.fuzz.doors import DOORS, prepare

    assert name in DOORS
    prepare()
    _limit_memory()
    play_here(name, range(int(first), int(first) + int(count)), Path(folder), tell=True)


if __name__ == "__main__":
    main()
