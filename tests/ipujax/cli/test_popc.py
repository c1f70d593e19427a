"""popc: what it lists of a file, and what it says of one that does not compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipujax.cli import popc

TEXT = """#include <poplar/Vertex.hpp>
template <class T> class Scale : public poplar::Vertex {
public:
  poplar::Input<poplar::Vector<T>> x;
  poplar::Vector<poplar::Output<poplar::Vector<int>>> y;
  unsigned n = WIDTH;
  bool compute() { return true; }
};
template class Scale<half>;
"""


def test_it_lists_vertex_types_with_their_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.cpp").write_text(TEXT)
    assert popc.main([str(tmp_path / "a.cpp"), "-DWIDTH=4"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Vertex Scale<half>",
        "  x: Input<Vector<HALF>>",
        "  y: Vector<Output<Vector<INT>>>",
        "  n: uint32, 4",
        "Scale<...>",
    ]


def test_it_fails_with_the_compilers_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.cpp").write_text(TEXT)
    assert popc.main([str(tmp_path / "a.cpp")]) == 1
    assert "a.cpp:6" in (printed := capsys.readouterr()).err
    assert "WIDTH" in printed.err
    assert not printed.out
    assert popc.main([str(tmp_path / "vertices.gp")]) == 1
    assert "vertices.gp" in capsys.readouterr().err
