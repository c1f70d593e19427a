"""ONNX models as functions of JAX; needs the extra `onnx`."""

from .onnx_conversion import check_installed as check_installed
from .onnx_conversion import from_onnx as from_onnx
from .onnx_model import ConvertedGraph as ConvertedGraph
from .onnx_model import convert_graph as convert_graph
from .onnx_model import updates_of_variables as updates_of_variables
from .onnx_nodes import value_of_attribute as value_of_attribute
from .operators.graphcore_collectives import REPLICAS as REPLICAS
from .operators.table import ONNX as ONNX
from .read_model import read_onnx_model as read_onnx_model
