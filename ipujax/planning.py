"""Plans of pipelines: where to cut a model, by which schedule, and why that is the fastest.

`ipu.plan` plans a JAX function. Here are its parts: numbers alone are planned by `search`:

    from ipujax import planning

    costs = planning.Costs(forward=[1, 2, 3], backward=[2, 4, 6], cut_bytes=[8, 8])
    plan = planning.search(costs, ipus=2, micro_batches=16)
    print(plan)                                  # the stages, and why the alternatives lost
    plan.save("cut.json")
    planning.load("cut.json") == plan            # True
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
