"""The checks of arguments of plans."""

from ipujax.ground import Checks, PlanError

check = Checks(PlanError, PlanError)
