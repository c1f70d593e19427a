"""The host's side of programs: queues, their elements, synthetic data and data export."""

from . import dataset_benchmark as dataset_benchmark
from . import infeed_queue as infeed_queue
from . import outfeed_queue as outfeed_queue
from . import trace_frames as trace_frames
from . import utilities as utilities
from .elements import convert_leaf_to_array as convert_leaf_to_array
from .elements import iterate_dataset as iterate_dataset
from .infeed_queue import IPUInfeedQueue as IPUInfeedQueue
from .infeed_reading import Feeder as Feeder
from .infeed_reading import make_exhausted_error as make_exhausted_error
from .keys import keys_to_words as keys_to_words
from .outfeed_queue import IPUOutfeedMode as IPUOutfeedMode
from .outfeed_queue import IPUOutfeedQueue as IPUOutfeedQueue
from .queues import Collecting as Collecting
from .queues import Infeed as Infeed
from .queues import Outfeed as Outfeed
from .queues import Queue as Queue
from .synthetic import make_synthetic_array as make_synthetic_array
from .utilities import reset_ipu_seed as reset_ipu_seed
from .utilities import use_synthetic_data_for as use_synthetic_data_for
