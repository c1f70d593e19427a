from .operators.scopes import current_device as current_device
from .operators.scopes import frontend_attribute as frontend_attribute
from .operators.scopes import ipu_jit_scope as ipu_jit_scope
from .operators.scopes import ipu_scope as ipu_scope
from .operators.scopes import ipu_shard as ipu_shard
from .operators.scopes import outside_compilation_scope as outside_compilation_scope
from .operators.scopes import partials_type as partials_type
from .operators.scopes import stochastic_rounding as stochastic_rounding
