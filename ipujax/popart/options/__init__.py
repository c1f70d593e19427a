"""What a user may say of a session."""

from ipujax.popart.options.kinds import RecomputationType as RecomputationType
from ipujax.popart.options.kinds import ReductionType as ReductionType
from ipujax.popart.options.kinds import SubgraphCopyingStrategy as SubgraphCopyingStrategy
from ipujax.popart.options.kinds import SyntheticDataMode as SyntheticDataMode
from ipujax.popart.options.kinds import VirtualGraphMode as VirtualGraphMode
from ipujax.popart.options.session_options import SessionOptions as SessionOptions
