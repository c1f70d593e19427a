"""Models of other libraries as variables and JAX functions: what all front ends give."""

from .frontend_checks import check as check
from .frontend_model import Model as Model
from .frontend_model import Part as Part
from .frontend_model import Tree as Tree
from .frontend_model import Variables as Variables
