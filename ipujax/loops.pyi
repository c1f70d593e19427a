from .operators.loops import repeat as repeat
from .operators.loops import while_loop as while_loop
