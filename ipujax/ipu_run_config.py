"""The configuration of estimators: IPUs, steps per device loop, checkpoints and logging.

For example::

    run_config = ipu.ipu_run_config.RunConfig(
        ipu_run_config=ipu.ipu_run_config.IPURunConfig(
            iterations_per_loop=100, ipu_options=config, num_replicas=2
        ),
        model_dir="out",
        save_checkpoints_steps=1000,
    )

Source: TensorFlow API, Run configs.
"""

from __future__ import annotations

from ipujax.doors.estimators import ipu_run_config as _ipu_run_config

__all__ = [
    "IPURunConfig",
    "RunConfig",
]


def __dir__() -> list[str]:
    return __all__


IPURunConfig = _ipu_run_config.IPURunConfig
RunConfig = _ipu_run_config.RunConfig
