"""Plans of pipelines: from the costs of a model's segments to the fastest cut and schedule."""

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
