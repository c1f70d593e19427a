"""The compiler of ipujax: a jaxpr in, a Program for virtual IPUs out.

Pure functions on frozen data: no devices, no files, no environment, no global state. The order
of the passes is `lowering.lower`; the Program is `lowering.ir.program`. What is named here is all
that the rest of ipujax may use.
"""

from lowering import collectives as collectives
from lowering import errors as errors
from lowering import ir as ir
from lowering import jaxpr as jaxpr
from lowering import marks as marks
from lowering import streams as streams
from lowering.lower import lower as lower
from lowering.options import Options as Options
from lowering.passes.fuse import fuse as fuse
from lowering.passes.fuse import is_one_kernel as is_one_kernel
from lowering.units import HOST as HOST
