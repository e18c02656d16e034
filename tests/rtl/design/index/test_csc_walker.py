"""The walker of relative CSC: every entry once, in the cycle that its model says."""

import numpy as np

from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.design.index.csc_walker import CscWalkerSpec, RelativeCscWalker, csc_cycles, csc_memory
from acf.rtl.verify.benches.memory_bench import WithMemory
from acf.sparse.relative_csc import encode_columns


def test_the_csc_walker_decodes_columns_and_passes_over_padding(simulate) -> None:
    generator, spec = np.random.default_rng(1), CscWalkerSpec(skip_bits=2)
    columns = (generator.random((6, 40)) < 0.1) * generator.integers(1, 9, (6, 40)).astype(float)
    columns[2] = 0.0
    encoded = encode_columns(columns, spec.skip_bits)
    assert encoded.padding > 0
    memory = csc_memory(encoded, bf16_bits(encoded.values).tolist(), spec)
    ready = (generator.random(140) < 0.7).astype(int)
    outputs = simulate(WithMemory(RelativeCscWalker(spec), memory)).run(
        {"start": np.arange(ready.size) == 0, "columns": 6, "entries_base": 7, "ready": ready}
    )
    decoded = np.zeros_like(columns)
    for cycle, entry in enumerate(csc_cycles(memory, 6, spec, ready.tolist())):
        assert bool(outputs["valid"][cycle]) == (entry is not None), f"cycle {cycle}"
        if entry is not None:
            assert {name: int(outputs[name][cycle]) for name in vars(entry)} == vars(entry), f"cycle {cycle}"
            decoded[entry.column, entry.row] = bf16_values([entry.value])[0]
    np.testing.assert_array_equal(decoded, columns)
    assert outputs["busy"][-1] == 0
