"""Trace points of the original's profiling library, as spans of `ipu.host_trace`.

For example::

    channel = libpvti.createTraceChannel("training")
    with ipu.host_trace.record() as trace:
        with libpvti.Tracepoint(channel, "an epoch"):
            step(x)
    print(trace)
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
