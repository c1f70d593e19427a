"""The C++ code, appended to a codelet's text, by which XLA calls it and Python reads its fields."""

from __future__ import annotations

from ipujax.poplar.cpp_source import VertexClass


def write_glue(number: int, name: str, vertex_class: VertexClass, *, runs_alone: bool) -> str:
    """Returns the C++ code of one vertex type's functions: run, describe and estimate.

    Args:
      number: the type's number in the library.
      name: the type's name in C++, with the arguments of a template.
      vertex_class: the type's class.
      runs_alone: whether its vertices run one after the other, on one thread.
    """
    visits = " ".join(f'function("{field}", vertex.{field});' for field in vertex_class.fields)
    checks = " ".join(
        f"static_assert(ipujax::isField<decltype(Type::{field})>, "
        f"\"field '{field}' must be an Input, Output or InOut, or plain data, no pointer\");"
        for field in vertex_class.fields
    )
    file, _, line = vertex_class.source_line.rpartition(":")
    fields, visible = f"Fields{number}", '__attribute__((visibility("default")))'
    return f"""namespace ipujax {{
struct {fields} {{
  using Type = ::{name};
# {line} "{file}"
  {checks}
# 1 "glue"
  template <class Vertex, class Function> static void visit(Vertex &vertex, Function &&function) {{
    {visits}
  }}
}};
}}
extern "C" {{
{visible} XLA_FFI_Error *ipujax_run_{number}(XLA_FFI_CallFrame *frame) {{
  return ipujax::run<ipujax::{fields}, {str(runs_alone).lower()}>(frame);
}}
{visible} const char *ipujax_describe_{number}() {{
  return ipujax::describe<ipujax::{fields}>();
}}
{visible} std::int64_t ipujax_estimate_{number}(
    const std::int64_t *sizes, const char *state, bool hasLoops) {{
  return ipujax::estimate<ipujax::{fields}>(sizes, state, hasLoops);
}}
}}"""
