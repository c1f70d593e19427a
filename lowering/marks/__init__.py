"""Marks: the texts that scopes write into name stacks, and that the compiler reads back."""

from lowering.marks.scope_marks import ATTRIBUTE as ATTRIBUTE
from lowering.marks.scope_marks import BLOCK as BLOCK
from lowering.marks.scope_marks import COMPOSED as COMPOSED
from lowering.marks.scope_marks import CONVOLUTIONS as CONVOLUTIONS
from lowering.marks.scope_marks import EACH_REPLICA as EACH_REPLICA
from lowering.marks.scope_marks import JIT_SCOPE as JIT_SCOPE
from lowering.marks.scope_marks import MULTI_CONV as MULTI_CONV
from lowering.marks.scope_marks import NARROWED as NARROWED
from lowering.marks.scope_marks import OUTSIDE as OUTSIDE
from lowering.marks.scope_marks import PARTIALS_TYPE as PARTIALS_TYPE
from lowering.marks.scope_marks import PRODUCTS as PRODUCTS
from lowering.marks.scope_marks import ROWS as ROWS
from lowering.marks.scope_marks import SHARD as SHARD
from lowering.marks.scope_marks import STAGE as STAGE
from lowering.marks.scope_marks import STOCHASTIC_ROUNDING as STOCHASTIC_ROUNDING
from lowering.marks.scope_marks import UNIT as UNIT
from lowering.marks.scope_marks import Marks as Marks
from lowering.marks.scope_marks import derivative_pass as derivative_pass
from lowering.marks.scope_marks import innermost_user_scope as innermost_user_scope
from lowering.marks.scope_marks import join_name_stacks as join_name_stacks
from lowering.marks.scope_marks import join_user_scopes as join_user_scopes
from lowering.marks.scope_marks import keep_lines_apart as keep_lines_apart
from lowering.marks.scope_marks import place_on_shard as place_on_shard
from lowering.marks.scope_marks import read_marks as read_marks
from lowering.marks.scope_marks import user_scopes as user_scopes
from lowering.marks.scope_marks import write_mark as write_mark
