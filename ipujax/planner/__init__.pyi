"""Plans of pipelines: from the costs of a model's segments to the fastest cut and schedule.

A model is a line of segments, each with its `costs`; a cut divides them into the stages of a
pipeline, whose costs `stage_costs` sums. `search_arguments` reads what may be chosen, `given_cuts`
the cuts that a user names. `alternative` lists the alternatives: all choices (schedule, IPUs,
micro-batches, replicas, recomputation, offloading) but the cut. For a cut it computes the seconds
of an update, from the schedule's tasks in `task_times`, and the bytes of each IPU at its `moments`.

`plan_search` looks for the fastest cut of all alternatives. It keeps a `candidate` for each: an
alternative with its best cut and a lower bound on the seconds of all its cuts. `bounds` makes a
first bound without a schedule, and `folded_stages` tells which V-shaped ones can fit; candidates
whose bound is above the best cut drop out. For the others `cut_search` finds a rough cut, a good
one, and the fastest, by the closer bounds of `path_bounds`: no update is faster than a path of
tasks that wait for one another, and dynamic programming over the stages of `stage_graph` finds the
cut for which paths are shortest. `boundary_shares` mixes cuts for such bounds; `local_search`
improves cuts where bounds rule out too few. `plan` is the result, which `plan_text` describes,
`plan_files` writes and `load_plan` reads.
"""

from .costs import Costs as Costs
from .given_cuts import read_given_cuts as read_given_cuts
from .load_plan import load as load
from .plan import Considered as Considered
from .plan import Plan as Plan
from .plan import PlannedStage as PlannedStage
from .plan import StageSeconds as StageSeconds
from .plan_checks import check as check
from .plan_search import find_plan as find_plan
from .plan_search import search as search
from .search_arguments import SearchArguments as SearchArguments
from .search_arguments import read_search_arguments as read_search_arguments
