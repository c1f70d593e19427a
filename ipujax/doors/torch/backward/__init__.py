"""User-written backward passes: `torch.autograd.Function` and hooks."""

from ipujax.doors.torch.backward.gradient_regions import WITH_BACKWARD as WITH_BACKWARD
from ipujax.doors.torch.backward.gradient_regions import (
    differentiable_inputs as differentiable_inputs,
)
from ipujax.doors.torch.backward.gradient_regions import fold_user_backward as fold_user_backward
from ipujax.doors.torch.backward.placing import place_hooks as place_hooks
from ipujax.doors.torch.backward.user_backward import BackwardUse as BackwardUse
from ipujax.doors.torch.backward.user_backward import keep_backward as keep_backward
