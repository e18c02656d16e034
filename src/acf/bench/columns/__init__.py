"""The columns of every bench's rows, and the tables that show them, a module for each; a new column is one entry."""

from acf.bench.columns.accuracy import ACCURACY, accuracy_markdown, accuracy_table
from acf.bench.columns.fabric import FABRIC_PRODUCT, fabric_columns, fabric_products_table, fabric_table
from acf.bench.columns.kernels import (
    CPU_STEP_PARTS,
    CPU_STEPS,
    KERNEL_RATIOS,
    STEP_RATIOS,
    cpu_step_part_table,
    cpu_step_table,
    kernel_ratio_table,
    step_ratio_table,
)
from acf.bench.columns.simulators import SIMULATOR, simulator_table
from acf.bench.columns.traces import EPOCH, SPEEDUPS, TRACE, epoch_table, trace_table
from acf.bench.columns.tracking import TRACKING, tracking_table
from acf.bench.columns.training import TRAINING_RUNS, TRIALS, training_tables, trials_table
from acf.bench.columns.zeros import ZEROS, zeros_table

__all__ = [
    "ACCURACY",
    "CPU_STEPS",
    "CPU_STEP_PARTS",
    "EPOCH",
    "FABRIC_PRODUCT",
    "KERNEL_RATIOS",
    "SIMULATOR",
    "SPEEDUPS",
    "STEP_RATIOS",
    "TRACE",
    "TRACKING",
    "TRAINING_RUNS",
    "TRIALS",
    "ZEROS",
    "accuracy_markdown",
    "accuracy_table",
    "cpu_step_part_table",
    "cpu_step_table",
    "epoch_table",
    "fabric_columns",
    "fabric_products_table",
    "fabric_table",
    "kernel_ratio_table",
    "simulator_table",
    "step_ratio_table",
    "trace_table",
    "tracking_table",
    "training_tables",
    "trials_table",
    "zeros_table",
]
