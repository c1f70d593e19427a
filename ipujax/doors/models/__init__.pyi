"""Room ipujax/doors/models."""

from .frontend_checks import check as check
from .model import Model as Model
from .model import Part as Part
from .model import Tree as Tree
from .model import Variables as Variables
