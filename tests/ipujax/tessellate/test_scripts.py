"""Scripts of TessellateIPU, unchanged: vertices in C++, jitted for "ipu" and for the host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.harness import ROOT

CODE = """#include <poplar/Vertex.hpp>
using namespace poplar;
template <typename T> class Weigh : public Vertex {
 public:
  InOut<Vector<T>> x;
  Vector<Input<Vector<T, VectorLayout::ONE_PTR>>> rows;
  Input<Vector<T>> offsets;
  Input<T> factor;
  Output<Vector<T>> total;
  Output<Vector<T>> tmp;
  int count;
  bool compute() {
    total[0] = 0;
    for (unsigned i = 0; i < x.size(); ++i) {
      tmp[i] = rows[0][i] * rows[1][i] + offsets[0];
      x[i] = x[i] * tmp[i] * *factor;
      total[0] += x[i] * count;
    }
    return true;
  }
};
"""

SCRIPT = """
import sys
from functools import partial

import jax
import numpy as np
from jax.config import config
from jax.core import Primitive, ShapedArray

import tessellate_ipu
from tessellate_ipu import create_ipu_tile_primitive, tile_map, tile_put_sharded
from tessellate_ipu.core import (
    IpuTileMapEquation, declare_ipu_tile_primitive, make_ipu_vertex_constant_info,
    make_ipu_vertex_in_info, make_ipu_vertex_inout_info, make_ipu_vertex_out_info,
    register_ipu_tile_primitive,
)
from tessellate_ipu.core.tile_common_utils import make_ipu_shaped_array
from tessellate_ipu.core.tile_interpreter_primitives import make_ipu_vertex_attributes

FILE, T = sys.argv[1], (2, 7)
weigh_p = Primitive("weigh")
weigh_p.multiple_results = True
weigh_p.def_impl(lambda x, rows, count: (x * rows[0] * rows[1], x.sum()))


def translate(p, tiles, inavals, attributes):
    x, rows = inavals
    integers, numbers = make_ipu_vertex_attributes(**attributes)
    return IpuTileMapEquation(
        vname="Weigh<float>", pname=p.name, tiles=tiles,
        inputs_info=[
            make_ipu_vertex_inout_info("x", x),
            make_ipu_vertex_in_info("rows", rows, vertex_dim2=rows.shape[1]),
            make_ipu_vertex_constant_info("offsets", np.array([0.5], np.float32)),
            make_ipu_vertex_constant_info("factor", np.array(2, np.float32), vertex_dim2=-1),
        ],
        outputs_info=[
            make_ipu_vertex_inout_info("x", x),
            make_ipu_vertex_out_info("total", ShapedArray((1,), np.float32)),
        ],
        attributes_i32=integers, attributes_f32=numbers,
        tmp_space_name="tmp", tmp_space_aval=make_ipu_shaped_array(x.shape, x.dtype),
        gp_filename=FILE, perf_estimate=40,
    )


register_ipu_tile_primitive(weigh_p, translate)
x = np.arange(6, dtype=np.float32).reshape(2, 3)
rows = np.arange(12, dtype=np.float32).reshape(2, 2, 3)


@partial(jax.jit, backend="ipu", static_argnums=(2,))
def run(x, rows, count):
    return tile_map(weigh_p, tile_put_sharded(x, T), tile_put_sharded(rows, T), count=count)


weighed, total = run(x, rows, count=3)
expected = x * (rows[:, 0] * rows[:, 1] + 0.5) * 2
np.testing.assert_allclose(weighed, expected, rtol=1e-6)
np.testing.assert_allclose(total, 3 * expected.sum(1, keepdims=True), rtol=1e-6)
assert weighed.tiles == T
report = run.lower(x, rows, 3).compile().report()
(found,) = report.compute_sets
assert np.flatnonzero(found.tile_cycles).tolist() == [2, 7] and found.tile_cycles.max() == 240


@declare_ipu_tile_primitive("Unknown<{x}>", gp_filename="nowhere.cpp")
def negated_p(x):
    return {"x": x}, None, None, 10


negated_p.def_impl(lambda x: -x)
for name in ("cpu", None):
    negate = jax.jit(lambda x: tile_map(negated_p, tile_put_sharded(x, T)), backend=name)
    if name == "cpu":
        np.testing.assert_array_equal(negate(x), -x)
try:
    jax.jit(lambda x: tile_map(negated_p, tile_put_sharded(x, T)), backend="ipu")(x)
except Exception as error:
    print(type(error).__name__, "nowhere.cpp" in str(error))

made_p = create_ipu_tile_primitive("made", "Made<{a}>", ["a", "b"], {"a": 0, "c": 1})
made_p.def_impl(lambda a, b: (a + b[0], b * 2))
a, c = jax.jit(lambda x: tile_map(made_p, *(tile_put_sharded(x, T),) * 2), backend="ipu")(x)
np.testing.assert_array_equal(a, x + x[:, :1])
np.testing.assert_array_equal(c, x * 2)
device = jax.devices("ipu")[0]
config.update("jax_log_compiles", False)
assert not jax.config.jax_log_compiles
assert jax.device_put(x, device).device() in jax.devices()
assert jax.device_put(x, jax.devices()[0]).shape == jax.ShapedArray((2, 3), np.float32).shape
print(device.num_tiles, tessellate_ipu.is_ipu_model(device), tessellate_ipu.__name__)
"""


def test_a_script_with_vertices_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "weigh.cpp").write_text(CODE)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "ipujax.tessellate", "script.py", str(tmp_path / "weigh.cpp")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "graph_program_compilation_error True",
        "1472 False ipujax.tessellate",
    ]
