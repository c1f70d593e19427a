"""Records what the host does in a real run, and how long it takes by wall clock.

For example::

    with ipu.host_trace.record() as trace:
        with ipu.host_trace.span("an epoch"):
            step(x)
    print(trace)                                      # seconds by kind
    step.lower(x).report(host=trace).to_perfetto("trace.json.gz")
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
