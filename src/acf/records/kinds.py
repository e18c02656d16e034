"""The kinds of records: which command writes each, and what its ``data`` holds."""

from dataclasses import dataclass

SCHEMA = 1
"""Version of the shape. A change that old readers would misread raises it."""


@dataclass(frozen=True)
class Kind:
    """The command that writes a kind of record, and what ``data`` holds."""

    command: str
    data: str


EVALUATIONS = "acf bench resnet50, acf bench transformer, acf bench cnn"

KINDS: dict[str, Kind] = {
    "results": Kind("acf simulate", "a list with one simulated step: every operation, cycles, energy, stalls"),
    "comparison": Kind("acf compare", "simulated steps, each with its ratios to the baseline"),
    "demo": Kind("acf demo", "`records` of both training runs, `results` of their steps, the path of the `report`"),
    "sweep": Kind("acf sweep", "`objectives`, `points` with parameters and figures, `importance` of parameters"),
    "architectures": Kind("acf architectures", "the machines by name, with peak, clock and area"),
    "capture": Kind("acf capture", "the captured steps: file, label, step, loss"),
    "traces": Kind("acf traces", "per trace: zeros by operand and pass, and what skipping them gains"),
    "epochs": Kind("acf epochs", "per epoch: loss, accuracy, and the figures of its trace"),
    "doctor": Kind("acf doctor", "the parts of this machine, and what follows from each"),
    "layers": Kind("acf doctor --layers", "per layer: dense and sparse time, their spread, and whether sparse pays"),
    "reproduce": Kind("acf reproduce", "`rows`: published figures beside ours"),
    "run": Kind("acf watch", "one training run: steps, topology updates, remaining time, outcome"),
    "kernels": Kind("acf bench kernels", "ratios of block-sparse to dense kernels, and this machine's ceilings"),
    "accuracy": Kind("acf bench accuracy", "`runs` by method and seed, and `summaries` beside dense training"),
    "training": Kind("acf bench training", "`runs` with curves of quality, `summaries` by variant, `trials`"),
    "pong": Kind("acf bench pong", "`runs`, score `points`, `summaries`, and the `systems` they would run on"),
    "evaluation": Kind(
        "acf bench resnet50, acf bench transformer, acf bench cnn", "`rows` of systems: throughput, energy, quality"
    ),
    "evaluation-runs": Kind(
        "acf bench resnet50, acf bench transformer, acf bench cnn", "every run and machine step, evaluation.json"
    ),
    "tracking": Kind("acf bench tracking", "per threshold rule: distance from the target sparsity"),
    "zeros": Kind("acf bench zeros", "per network: zeros of every layer by sparsity, mean and deviation over seeds"),
    "simulators": Kind("acf bench simulators", "seconds that the simulator takes per workload"),
    "ablations": Kind("acf bench ablation", "one record per ablation: its points, measures and failures"),
    "fabric": Kind("acf bench fabric", "whole steps on a fabric and machines of equal peak"),
    "offload": Kind("acf bench offload", "losses and times of a model trained on a simulated device"),
    "rtl-units": Kind("acf rtl units", "the components by name"),
    "rtl-emit": Kind("acf rtl emit", "the Verilog file, its modules and warnings"),
    "rtl-synth": Kind("acf rtl synth", "FPGA resources"),
    "rtl-area": Kind("acf rtl area", "area in gate equivalents by cell"),
    "rtl-costs": Kind("acf rtl costs", "area and energy as synthesised, beside the simulator's"),
    "rtl-power": Kind("acf rtl power", "relative power from the toggles of gates"),
    "rtl-lockstep": Kind("acf rtl lockstep", "programs and cycles on which model and gates agreed"),
    "rtl-sim": Kind("acf rtl sim", "cycles of a layer on the gates, by reason, and on the model"),
    "rtl-device": Kind("acf rtl device", "a layer on the device, from memory to memory"),
    "rtl-layers": Kind("acf rtl layers", "three layers on the device, beside the model"),
    "rtl-step": Kind("acf rtl step", "a whole training step of a layer on the device"),
    "rtl-moving-steps": Kind("acf rtl step --moves", "two steps on the device, which moves blocks between them"),
}
"""Every kind by name; docs/how-to/records.md shows them as a table."""
