"""Graphs of operators traced by another library, and their evaluation with JAX."""

from ipujax.doors.graphs.evaluate import Evaluation as Evaluation
from ipujax.doors.graphs.evaluate import module_scope as module_scope
from ipujax.doors.graphs.evaluate import substitute_refs as substitute_refs
from ipujax.doors.graphs.forward import FINAL_SCALE as FINAL_SCALE
from ipujax.doors.graphs.forward import GRADIENT as GRADIENT
from ipujax.doors.graphs.forward import UPDATED as UPDATED
from ipujax.doors.graphs.forward import Forward as Forward
from ipujax.doors.graphs.forward import Named as Named
from ipujax.doors.graphs.gradient_counting import CountedOperators as CountedOperators
from ipujax.doors.graphs.gradient_counting import GradientCounting as GradientCounting
from ipujax.doors.graphs.graph import Graph as Graph
from ipujax.doors.graphs.graph import Node as Node
from ipujax.doors.graphs.graph import Ref as Ref
from ipujax.doors.graphs.graph import describe_module as describe_module
from ipujax.doors.graphs.graph import names_of_refs as names_of_refs
from ipujax.doors.graphs.operators import Call as Call
from ipujax.doors.graphs.operators import Operators as Operators
from ipujax.doors.graphs.placement import Place as Place
from ipujax.doors.graphs.placement import Placement as Placement
