"""A report as Chrome's trace events, for ui.perfetto.dev: `events` writes them.

`tracks` says where each step is drawn, `nesting` puts what is around steps around them, `waits`
says what an IPU waits for, `living` how much it holds meanwhile, `counters` counts, `flows` draws
arrows.
"""

from ipujax.report.presentation.perfetto.events import host_events as host_events
from ipujax.report.presentation.perfetto.events import write as write
