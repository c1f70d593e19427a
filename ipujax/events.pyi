from .ground.events import IpuTraceEvent as IpuTraceEvent
from .ground.events import IpuTraceEventType as IpuTraceEventType
from .ground.events import Span as Span
from .ground.events import record as record
