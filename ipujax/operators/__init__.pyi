"""The implementations of the operators of `ipujax`'s public modules."""

from . import all_to_all as all_to_all
from . import cross_replica as cross_replica
from . import custom_operators as custom_operators
from . import functional as functional
from . import host_embedding as host_embedding
from . import image as image
from . import internal as internal
from . import loops as loops
from . import math as math
from . import metrics as metrics
from . import normalization_ops as normalization_ops
from . import random as random
from . import recurrent_layers as recurrent_layers
from . import reduce_scatter as reduce_scatter
from . import replication as replication
from . import scopes as scopes
from . import sharding as sharding
from . import slicing as slicing
from . import statistics_ops as statistics_ops
from . import summary as summary
from .all_to_all import all_gather as all_gather
from .closed_over import is_mapped as is_mapped
from .closed_over import is_traced as is_traced
from .closed_over import lift_closed_over as lift_closed_over
from .collectives import divide_total as divide_total
from .collectives import has_sums_in_loops as has_sums_in_loops
from .cross_replica import cross_replica_mean as cross_replica_mean
from .cross_replica import cross_replica_sum as cross_replica_sum
from .custom.error import custom_op_error as custom_op_error
from .dropout_rate import check_dropout_rate as check_dropout_rate
from .embedding.embedding_optimizers import HostEmbeddingOptimizerSpec as HostEmbeddingOptimizerSpec
from .embedding.embedding_optimizers import (
    HostEmbeddingSGDGAOptimizerSpec as HostEmbeddingSGDGAOptimizerSpec,
)
from .host_calls import call_on_host as call_on_host
from .linear_maps import run_linear_map as run_linear_map
from .loops import without_weak_type as without_weak_type
from .metrics import Metric as Metric
from .nn.activations import gelu as gelu
from .nn.activations import hard_sigmoid as hard_sigmoid
from .nn.activations import swish as swish
from .nn.candidates import log_uniform_candidate_sampler as log_uniform_candidate_sampler
from .nn.ctc_decoder import ctc_beam_search_decoder as ctc_beam_search_decoder
from .nn.ctc_decoder import (
    ctc_beam_search_decoder_with_log_probs as ctc_beam_search_decoder_with_log_probs,
)
from .nn.ctc_loss import ctc_loss as ctc_loss
from .nn.ctc_loss import ctc_loss_v2 as ctc_loss_v2
from .nn.ctc_loss import ctc_loss_with_log_probs as ctc_loss_with_log_probs
from .nn.ctc_loss import ctc_loss_with_logits as ctc_loss_with_logits
from .nn.multi_conv import multi_conv as multi_conv
from .nn.sampled_losses import nce_loss as nce_loss
from .nn.sampled_losses import sampled_softmax_loss as sampled_softmax_loss
from .printing import print_array as print_array
from .random_keys import choose_random_key as choose_random_key
from .replica_groups import REDUCTIONS as REDUCTIONS
from .replica_groups import exchange_in_group as exchange_in_group
from .replica_groups import gather_group as gather_group
from .replica_groups import reduce_group as reduce_group
from .replica_groups import scatter_reduced as scatter_reduced
from .replication import replication_index as replication_index
from .scopes import attribute_scope_name as attribute_scope_name
from .scopes import current_device as current_device
from .scopes import frontend_attribute as frontend_attribute
from .scopes import ipu_scope as ipu_scope
from .scopes import keep_lines_apart as keep_lines_apart
from .seed_counters import offset_seed_counters as offset_seed_counters
from .supersteps import LAUNCH_CYCLES as LAUNCH_CYCLES
from .supersteps import BetweenIpus as BetweenIpus
from .supersteps import Placement as Placement
from .supersteps import Superstep as Superstep
from .supersteps import TileNumbers as TileNumbers
from .supersteps import TileRuns as TileRuns
from .supersteps import cycles_of_function as cycles_of_function
from .supersteps import linear_tile_bounds as linear_tile_bounds
from .supersteps import read_modelled_clock as read_modelled_clock
from .supersteps import run_branch as run_branch
from .supersteps import run_superstep as run_superstep
from .supersteps import tile_cycles_of as tile_cycles_of
