"""User-written backward passes: `torch.autograd.Function` and hooks."""

from ipujax.frontends.pytorch.backward.placing import place_hooks as place_hooks
from ipujax.frontends.pytorch.backward.regions import WITH_BACKWARD as WITH_BACKWARD
from ipujax.frontends.pytorch.backward.regions import differentiable_inputs as differentiable_inputs
from ipujax.frontends.pytorch.backward.regions import fold_user_backward as fold_user_backward
from ipujax.frontends.pytorch.backward.user_backward import BackwardUse as BackwardUse
from ipujax.frontends.pytorch.backward.user_backward import keep_backward as keep_backward
