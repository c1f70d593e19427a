"""Computations with JAX that the operators of several libraries share."""

from .ctc_loss import LOG_ZERO as LOG_ZERO
from .ctc_loss import ctc_losses as ctc_losses
from .interpolation import apply_interpolation_matrix as apply_interpolation_matrix
from .interpolation import cubic_pieces as cubic_pieces
from .interpolation import cubic_weights as cubic_weights
from .interpolation import take_nearest as take_nearest
from .interpolation import triangle_weights as triangle_weights
from .running_statistics import deviations_from_mean as deviations_from_mean
from .running_statistics import shape_per_channel as shape_per_channel
from .running_statistics import widen_for_statistics as widen_for_statistics
from .window_kernels import Windows as Windows
from .window_kernels import plan_windows as plan_windows
from .window_reductions import count_window_elements as count_window_elements
from .window_reductions import cross_window_indices as cross_window_indices
from .window_reductions import lowest_value as lowest_value
from .window_reductions import max_of_elements as max_of_elements
from .window_reductions import max_with_indices as max_with_indices
from .window_reductions import reduce_windows as reduce_windows
