"""Room lowering/marks."""

from lowering.marks import scope_marks as scope_marks
from lowering.marks.scope_marks import join_name_stacks as join_name_stacks
from lowering.marks.scope_marks import on_shard as on_shard
from lowering.marks.scope_marks import read_marks as read_marks
