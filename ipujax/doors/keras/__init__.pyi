"""The front end of Keras: its models as variables and parts."""

from . import keras_backend as keras_backend
from .keras_backend import import_keras as import_keras
from .keras_conversion import add_trace_context as add_trace_context
from .keras_conversion import from_keras as from_keras
from .keras_conversion import name_variables as name_variables
