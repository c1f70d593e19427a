from .ground.host_trace import KINDS as KINDS
from .ground.host_trace import HostSpan as HostSpan
from .ground.host_trace import HostTrace as HostTrace
from .ground.host_trace import record as record
from .ground.host_trace import span as span
