"""The options of a session, and their enumerations."""

from ipujax.popart.options.option_kinds import (
    AccumulateOuterFragmentSchedule as AccumulateOuterFragmentSchedule,
)
from ipujax.popart.options.option_kinds import AutodiffStitchStrategy as AutodiffStitchStrategy
from ipujax.popart.options.option_kinds import (
    BatchSerializationBatchSchedule as BatchSerializationBatchSchedule,
)
from ipujax.popart.options.option_kinds import BatchSerializationMethod as BatchSerializationMethod
from ipujax.popart.options.option_kinds import (
    BatchSerializationTransformContext as BatchSerializationTransformContext,
)
from ipujax.popart.options.option_kinds import CollectiveOperator as CollectiveOperator
from ipujax.popart.options.option_kinds import ExchangeStrategy as ExchangeStrategy
from ipujax.popart.options.option_kinds import ExecutionPhaseIOSchedule as ExecutionPhaseIOSchedule
from ipujax.popart.options.option_kinds import ExecutionPhaseSchedule as ExecutionPhaseSchedule
from ipujax.popart.options.option_kinds import (
    GradientTensorTrackingMethod as GradientTensorTrackingMethod,
)
from ipujax.popart.options.option_kinds import InitType as InitType
from ipujax.popart.options.option_kinds import Instrumentation as Instrumentation
from ipujax.popart.options.option_kinds import IrSerializationFormat as IrSerializationFormat
from ipujax.popart.options.option_kinds import MeanReductionStrategy as MeanReductionStrategy
from ipujax.popart.options.option_kinds import MergeVarUpdateType as MergeVarUpdateType
from ipujax.popart.options.option_kinds import RecomputationType as RecomputationType
from ipujax.popart.options.option_kinds import RecomputeType as RecomputeType
from ipujax.popart.options.option_kinds import ReductionType as ReductionType
from ipujax.popart.options.option_kinds import ReplicatedStreamMode as ReplicatedStreamMode
from ipujax.popart.options.option_kinds import ReplicatedTensorSharding as ReplicatedTensorSharding
from ipujax.popart.options.option_kinds import ScatterReduction as ScatterReduction
from ipujax.popart.options.option_kinds import SubgraphCopyingStrategy as SubgraphCopyingStrategy
from ipujax.popart.options.option_kinds import SyncPattern as SyncPattern
from ipujax.popart.options.option_kinds import SyntheticDataMode as SyntheticDataMode
from ipujax.popart.options.option_kinds import TensorRemapType as TensorRemapType
from ipujax.popart.options.option_kinds import TensorStorage as TensorStorage
from ipujax.popart.options.option_kinds import TileSet as TileSet
from ipujax.popart.options.option_kinds import VirtualGraphMode as VirtualGraphMode
from ipujax.popart.options.session_options import SessionOptions as SessionOptions
from ipujax.popart.options.settings import (
    AccumulateOuterFragmentSettings as AccumulateOuterFragmentSettings,
)
from ipujax.popart.options.settings import AutodiffSettings as AutodiffSettings
from ipujax.popart.options.settings import (
    AutomaticLossScalingSettings as AutomaticLossScalingSettings,
)
from ipujax.popart.options.settings import BatchSerializationSettings as BatchSerializationSettings
from ipujax.popart.options.settings import ExecutionPhaseSettings as ExecutionPhaseSettings
from ipujax.popart.options.settings import ExperimentalSettings as ExperimentalSettings
from ipujax.popart.options.settings import (
    ReplicatedCollectivesSettings as ReplicatedCollectivesSettings,
)
from ipujax.popart.options.settings import TensorLocation as TensorLocation
from ipujax.popart.options.settings import TensorLocationSettings as TensorLocationSettings
