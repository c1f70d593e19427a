"""Writes a report as Chrome's trace events, for ui.perfetto.dev.

`events` writes them. `tracks` chooses the track of each step, `nesting` puts the slices of calls,
tasks and scopes around steps, `waits` finds what an IPU waits for, `live_bytes` how much it holds
meanwhile, `counters` counts, `flows` draws arrows.
"""

from ipujax.report.presentation.perfetto.trace_events import (
    list_host_span_events as list_host_span_events,
)
from ipujax.report.presentation.perfetto.trace_events import (
    write_trace_events as write_trace_events,
)
