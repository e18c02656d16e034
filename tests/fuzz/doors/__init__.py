"""The doors of the package through which a user's files and values come in."""

from tests.fuzz.case import Door
from tests.fuzz.doors import checkpoints, commands, data, devices, functions, machines, records, stores, traces

DOORS: dict[str, Door] = {
    "trace_header": traces.trace_header,
    "trace_command": traces.trace_command,
    "trace_bytes": traces.trace_bytes,
    "machine": machines.machine,
    "machine_bytes": machines.machine_bytes,
    "sweep_file": machines.sweep_file,
    "sweep_played": machines.sweep_played,
    "checkpoint": checkpoints.checkpoint,
    "sharded_checkpoint": checkpoints.sharded_checkpoint,
    "saved_bytes": checkpoints.saved_bytes,
    "saved_model": checkpoints.saved_model,
    "program": checkpoints.program,
    "recording": checkpoints.recording,
    "topology_store": stores.topology_store,
    "sweep_store": stores.sweep_store,
    "evaluation_store": stores.evaluation_store,
    "pong_store": stores.pong_store,
    "run_log": stores.run_log,
    "report": records.report,
    "accuracy_record": records.accuracy_record,
    "training_record": records.training_record,
    "zeros_record": records.zeros_record,
    "ablation_record": records.ablation_record,
    "epochs_record": records.epochs_record,
    "data_folder": data.data_folder,
    "settings": functions.settings,
    "functions": functions.functions,
    "device_calls": devices.device_calls,
    "command_line": commands.command_line,
    "output_place": commands.output_place,
}
"""Every door by name."""


def prepare() -> None:
    """What takes long once and is no part of any case."""
    traces.compile_loops()
