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

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
