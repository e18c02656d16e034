"""The C++ between ctypes and a Verilated model: one call runs a batch of cycles over two arrays."""

from collections.abc import Sequence

from acf.rtl.design.primitives.ports import Port

_TEMPLATE = """\
#include "Model.h"
#include "verilated.h"
#include <cstdint>
#define EXPORT extern "C" __attribute__((visibility("default")))
#if VM_TRACE
#include "verilated_saif_c.h"
#endif

struct Bench {{
    VerilatedContext context;
    Model model;
#if VM_TRACE
    VerilatedSaifC* trace = nullptr;
#endif
    Bench() : model{{&context}} {{
        context.traceEverOn(VM_TRACE);
        {clear}
        model.eval();
        {reset}
    }}
    ~Bench() {{ model.final(); }}
    void settle() {{
        model.eval();
#if VM_TRACE
        if (trace) trace->dump(context.time());
        context.timeInc(1);
#endif
    }}
}};

EXPORT void* acf_create() {{ return new Bench; }}
EXPORT void acf_destroy(void* handle) {{ delete static_cast<Bench*>(handle); }}

EXPORT void acf_run(void* handle, int64_t cycles, const uint64_t* inputs, uint64_t* outputs) {{
    Bench& bench = *static_cast<Bench*>(handle);
    Model& model = bench.model;
    for (int64_t cycle = 0; cycle < cycles; cycle++, inputs += {input_columns}, outputs += {output_columns}) {{
        {drive}
        {fall}
        bench.settle();
        {sample}
        {rise}
    }}
}}
"""
_TRACE = """
#if VM_TRACE
EXPORT void acf_trace(void* handle, const char* path) {
    Bench& bench = *static_cast<Bench*>(handle);
    if (path) {
        bench.trace = new VerilatedSaifC;
        bench.model.trace(bench.trace, 99);
        bench.trace->open(path);
    } else {
        bench.trace->close();
        delete bench.trace;
        bench.trace = nullptr;
    }
}
#endif
"""


def harness_text(ports: Sequence[Port], is_clocked: bool, resets: bool = False) -> str:
    """C++ with a plain C ABI; columns of the arrays follow ``ports``, inputs and outputs apart.

    With ``resets`` a model begins with a cycle of reset, as gates without power-on values must.
    """
    inputs, outputs = [port for port in ports if port.is_input], [port for port in ports if not port.is_input]
    clock = "model.clk = 0; model.rst = 0;" if is_clocked else ""
    bench = _TEMPLATE.format(
        clear=clock + "".join(_clear(port) for port in inputs),
        reset="model.rst = 1; model.eval(); model.clk = 1; model.eval(); model.rst = 0;"
        if resets and is_clocked
        else "",
        input_columns=sum(port.words for port in inputs),
        output_columns=sum(port.words for port in outputs),
        drive="\n        ".join(_assignments(inputs, is_input=True)),
        fall="model.clk = 0;" if is_clocked else "",
        sample="\n        ".join(_assignments(outputs, is_input=False)),
        rise="model.clk = 1; bench.settle();" if is_clocked else "",
    )
    return bench + _TRACE


def _field(port: Port) -> str:
    return "model." + port.name.replace("__", "___05F")  # how Verilator writes two underscores


def _clear(port: Port) -> str:
    if port.width <= 64:
        return f" {_field(port)} = 0;"
    return "".join(f" {_field(port)}[{part}] = 0;" for part in range(-(-port.width // 32)))


def _assignments(ports: Sequence[Port], is_input: bool) -> list[str]:
    """One statement per word; ports of more than 64 bits are 32-bit words in the model."""
    lines, column = [], 0
    for port in ports:
        if port.width <= 64:
            place = f"{'inputs' if is_input else 'outputs'}[{column}]"
            lines.append(f"{_field(port)} = {place};" if is_input else f"{place} = {_field(port)};")
        else:
            lines += _wide_assignments(port, column, is_input)
        column += port.words
    return lines


def _wide_assignments(port: Port, column: int, is_input: bool) -> list[str]:
    parts = -(-port.width // 32)
    if is_input:
        return [
            f"{_field(port)}[{part}] = (uint32_t)(inputs[{column + part // 2}] >> {32 * (part % 2)});"
            for part in range(parts)
        ]
    words = []
    for word in range(port.words):
        high = f" | (uint64_t){_field(port)}[{2 * word + 1}] << 32" if 2 * word + 1 < parts else ""
        words.append(f"outputs[{column + word}] = (uint64_t){_field(port)}[{2 * word}]{high};")
    return words
