"""Events and spans of time that the system reports to listeners: compilation, transfers, runs.

For example::

    with events.record() as trace:
        run(x)
    utils.extract_all_types_from_event_trace(trace)

`host_trace` records the spans. While nobody listens, all of this is one look at `ACTIVE`.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
