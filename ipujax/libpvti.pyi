from .ground.trace_points import TraceChannel as TraceChannel
from .ground.trace_points import Tracepoint as Tracepoint
from .ground.trace_points import createTraceChannel as createTraceChannel
from .ground.trace_points import instrument as instrument
from .ground.trace_points import instrument_fn as instrument_fn
