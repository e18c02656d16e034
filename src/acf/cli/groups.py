"""The group of commands `acf`: earlier names of options still work, and every help ends with examples."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from acf.files import check_writable
from acf.printable import printable_line

EARLIER_NAMES = {
    "--save": "--out",
    "--output": "--out",
    "-o": "--out",
    "--folder": "--out",
    "--config": "--on",
    "--sparsities": "--sparsity",
}
"""Options that were renamed. Each still works in commands that have the new name and not the old one."""

EXAMPLES = {
    "acf demo": ("acf demo --steps 200 --out runs/demo",),
    "acf simulate": (
        "acf simulate step.safetensors --on acf-512",
        "acf simulate step.safetensors --on my-machine.toml --out result.json",
    ),
    "acf compare": (
        "acf compare step.safetensors --on acf-512,tensordash-512 --baseline tensorcore-512",
        "acf compare dense.safetensors sparse.safetensors --on acf-512 --baseline tensorcore-512@first --csv table.csv",
    ),
    "acf capture": ("acf capture resnet50 --steps 20 --batch 8 --out step.safetensors",),
    "acf traces": ("acf traces dense.safetensors sparse.safetensors",),
    "acf epochs": ("acf epochs vgg8 --out runs/epochs",),
    "acf report": ("acf report results.json runs/ablation/block.json runs/mine/sweep.sqlite --out report.html",),
    "acf reproduce": ("acf reproduce --only T5,T6",),
    "acf doctor": ("acf doctor", "acf doctor --layers my_model:build --sparsity 0.9 --block 32"),
    "acf bench kernels": ("acf bench kernels --device cpu --blocks 16,32 --sparsity 0.5,0.9",),
    "acf bench accuracy": ("acf bench accuracy --methods dense,dst-90 --seeds 3 --out accuracy.json",),
    "acf bench training": (
        "acf bench training --task resnet18 --variants dense,static-90/block=64 --out training.json",
        "acf report training.json --out training.html",
    ),
    "acf bench tracking": ("acf bench tracking --methods dts,static --out runs/tracking",),
    "acf bench zeros": ("acf bench zeros resnet50 --sparsity 0,0.9 --out zeros.json",),
    "acf bench simulators": ("acf bench simulators --trace step.safetensors",),
    "acf bench ablation": ("acf bench ablation --what block,prefetch --out runs/ablation",),
    "acf rtl units": ("acf rtl units",),
    "acf rtl emit": ("acf rtl emit mac --out mac.v", "acf rtl emit --on acf-512 --out fabric.v"),
    "acf rtl synth": ("acf rtl synth mac",),
    "acf rtl area": ("acf rtl area mac --liberty cells.lib",),
    "acf rtl costs": ("acf rtl costs --liberty cells.lib --node 180 --on acf-512",),
    "acf rtl power": ("acf rtl power mac --cycles 200 --zeros 0.5",),
    "acf rtl lockstep": ("acf rtl lockstep --programs 5",),
    "acf rtl sim": ("acf rtl sim --timing 40",),
    "acf rtl device": ("acf rtl device --programs 2",),
    "acf rtl layers": ("acf rtl layers --on acf-512 --masters 8",),
    "acf rtl step": ("acf rtl step --tokens 16 --inputs 16 --outputs 16",),
    "acf rtl describe": ("acf rtl describe --on acf-512",),
    "acf bench resnet50": ("acf bench resnet50 --data DATA --data-set cifar10-jpeg --out runs",),
    "acf bench transformer": ("acf bench transformer --data DATA --data-set multi30k --out runs",),
    "acf bench cnn": ("acf bench cnn --data DATA --data-set fashion-mnist --out runs",),
    "acf bench pong": ("acf bench pong --variants dense,rigl-90/block=32 --out runs/pong",),
    "acf bench offload": (
        "acf bench offload --workload cnn --steps 20 --sparsity 0.5",
        "acf bench offload --workload cnn --steps 3 --timeline run.json",
    ),
    "acf bench fabric": ("acf bench fabric --sparsity 0,0.9 --out fabric.json",),
}
"""Examples by command; a command that is not here has them in its docstring."""


OUTPUTS = ("--out", "--csv", "--plot", "--timeline", "--logs")
"""Options that name a file or a folder to write."""


class AcfGroup(TyperGroup):
    """A group whose commands accept `EARLIER_NAMES` and show `EXAMPLES`."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, with its examples below its help."""
        command = super().get_command(ctx, cmd_name)
        examples = EXAMPLES.get(f"{ctx.command_path} {cmd_name}", ())
        if command is not None and examples:
            command.epilog = "\n\n".join(("Examples:", *examples))
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C is one line, which says where finished work lies, and exit code 130 as in shells."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interruption:
            notes = getattr(interruption, "__notes__", [])
            typer.echo(printable_line("; ".join(("acf: interrupted", *notes))), err=True)
            raise typer.Exit(130) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the words name, and its arguments with today's names of options."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and any(argument.partition("=")[0] in EARLIER_NAMES for argument in rest):
            rest = _renamed(rest, {flag for option in command.get_params(ctx) for flag in option.opts})
        _check_outputs(rest)
        return name, command, rest


def _check_outputs(arguments: list[str]) -> None:
    """Refuse a place that cannot be written to before the command works for it; a folder is the command's to judge."""
    for argument, following in pairwise([*arguments, ""]):
        flag, equals, value = argument.partition("=")
        place = Path(value if equals else following)
        if flag in OUTPUTS and place != Path() and not os.path.isdir(place):
            check_writable(place)


def _renamed(arguments: list[str], known: set[str]) -> list[str]:
    """``arguments`` with earlier names of options replaced, where the command knows the new name alone."""
    renamed = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        today = EARLIER_NAMES.get(flag, flag)
        renamed.append(today + equals + value if today in known and flag not in known else argument)
    return renamed
