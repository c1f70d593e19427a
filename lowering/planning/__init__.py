"""Plans of pipelines: from the costs of a model's segments to the fastest cut and schedule."""

from lowering.planning.costs import Costs as Costs
from lowering.planning.plan import Considered as Considered
from lowering.planning.plan import Plan as Plan
from lowering.planning.plan import PlannedStage as PlannedStage
from lowering.planning.plan import StageSeconds as StageSeconds
from lowering.planning.plan_error import PlanError as PlanError
from lowering.planning.search import search as search
