"""Strategies: scopes in which Keras models train on the IPUs of one or several processes."""

from . import ipu_strategy as ipu_strategy
from . import multi_worker_strategy as multi_worker_strategy
from .multi_worker_strategy import IPUMultiWorkerStrategy as IPUMultiWorkerStrategy
from .worker_strategy import ReduceOp as ReduceOp
from .worker_strategy import WorkerStrategy as WorkerStrategy
from .worker_strategy import check as check
from .worker_strategy import worker_index as worker_index
