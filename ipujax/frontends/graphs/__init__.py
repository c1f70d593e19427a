"""Graphs of operators that another library has traced, and what evaluates them with JAX."""

from ipujax.frontends.graphs.evaluate import Evaluation as Evaluation
from ipujax.frontends.graphs.evaluate import filled as filled
from ipujax.frontends.graphs.graph import Graph as Graph
from ipujax.frontends.graphs.graph import Node as Node
from ipujax.frontends.graphs.graph import Ref as Ref
from ipujax.frontends.graphs.operators import Call as Call
from ipujax.frontends.graphs.operators import Operators as Operators
