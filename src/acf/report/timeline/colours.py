"""One colour for everything that a cycle can be spent on.

Viewers of trace events take no free colours: chrome://tracing has reserved names, of which these are the nearest to the
report's colours. Perfetto chooses the colour of a slice by its name, so there a reason has one colour too.
"""

TRACE_COLOURS: dict[str, str] = {
    "effectual": "rail_load",
    "work": "rail_load",
    "memory": "heap_dump_child_node_arrow",
    "ineffectual": "generic_work",
    "edge": "thread_state_runnable",
    "imbalance": "rail_idle",
    "mesh": "rail_response",
    "scan": "thread_state_uninterruptible",
    "fill": "cq_build_attempt_runnig",  # spelled like this in the viewer
    "drain": "startup",
    "latency": "vsync_highlight_color",
    "engines": "detailed_memory_dump",
    "padding": "background_memory_dump",
    "no_pair": "thread_state_iowait",
    "below_peak": "heap_dump_stack_frame",
    "launch": "terrible",
    "gated": "grey",
    "scratchpad_banks": "bad",
}
"""Reserved colour by what became of a MAC slot, or of a cycle of an SCU."""
