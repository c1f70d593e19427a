"""Models of other libraries as variables and JAX functions: what all front ends give."""

from .frontend_checks import check as check
from .model import Model as Model
from .model import Part as Part
from .model import Tree as Tree
from .model import Variables as Variables
