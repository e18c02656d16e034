"""One colour for everything a cycle can be spent on, the same in every report and timeline.

Viewers of trace events take no free colours: ``TRACE_COLOURS`` names the reserved colour of chrome://tracing that is
nearest. Perfetto chooses the colour of a slice by its name, so there a reason has one colour too.
"""

REASON_COLOURS: dict[str, str] = {
    "effectual": "#009e73",
    "work": "#009e73",
    "ineffectual": "#1a80c4",
    "memory": "#d55e00",
    "mesh": "#e69f00",
    "imbalance": "#cc79a7",
    "fill": "#8c8c8c",
    "drain": "#56b4e9",
    "scan": "#c9bb1c",
    "edge": "#7a5195",
    "gated": "#a6761d",
    "no_pair": "#6b8e23",
    "scratchpad_banks": "#b03a2e",
    "padding": "#4b6c8f",
    "latency": "#bdbdbd",
    "engines": "#5e4fa2",
    "below_peak": "#f46d43",
    "launch": "#3d3d3d",
}
"""Colour by what became of a MAC slot, or of a cycle of an SCU."""

TRACE_COLOURS: dict[str, str] = {
    "effectual": "rail_load",
    "work": "rail_load",
    "ineffectual": "rail_response",
    "memory": "heap_dump_child_node_arrow",
    "mesh": "rail_idle",
    "imbalance": "thread_state_uninterruptible",
    "fill": "generic_work",
    "drain": "thread_state_runnable",
    "scan": "cq_build_attempt_runnig",
    "edge": "detailed_memory_dump",
    "gated": "bad",
    "no_pair": "olive",
    "scratchpad_banks": "terrible",
    "padding": "light_memory_dump",
    "latency": "cq_build_abandoned",
    "engines": "vsync_highlight_color",
    "below_peak": "rail_animation",
    "launch": "black",
}
"""Reserved colour name of the trace-event viewer (sic, as it is spelled there) by the same reasons."""
