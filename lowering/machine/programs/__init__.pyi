"""The cost of a whole program: the steps of each IPU over time, and its memory meanwhile."""

from .loop_counters import find_counted_branches as find_counted_branches
from .pipeline_timeline import Timeline as Timeline
from .pipeline_timeline import compute_timeline as compute_timeline
from .pipeline_timeline import find_tick_patterns as find_tick_patterns
from .program_facts import ProgramFacts as ProgramFacts
from .remote_storage import bytes_stored_per_replica as bytes_stored_per_replica
from .residency import Residency as Residency
from .residency import find_residency as find_residency
from .shared_layouts import SharedLayouts as SharedLayouts
from .timing import ProgramTimer as ProgramTimer
from .timing import time_program as time_program
from .updates import find_loop_updates as find_loop_updates
from .updates import find_updates as find_updates
