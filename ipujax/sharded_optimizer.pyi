from .optimizers import ShardedOptimizer as ShardedOptimizer
