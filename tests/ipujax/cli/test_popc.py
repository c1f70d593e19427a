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
    (tmp_path / "pointer.cpp").write_text(TEXT.replace("unsigned n = WIDTH", "const char *n"))
    assert popc.main([str(tmp_path / "pointer.cpp")]) == 1
    message = capsys.readouterr().err
    assert "field 'n' must be an Input, Output or InOut, or plain data, no pointer" in message
    assert "pointer.cpp:2" in message.split("where:")[1]
    assert popc.main([str(tmp_path / "vertices.gp")]) == 1
    assert "vertices.gp" in capsys.readouterr().err


def test_it_takes_the_flags_of_poplars_compiler_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "width.hpp").write_text("#define WIDTH (4 + MORE)\n")
    text = tmp_path / "a.cpp"
    text.write_text(f"#include <width.hpp>\n{TEXT}")
    flags = ["-O3", "--target=ipu2", "-I", str(tmp_path / "headers"), "-D", "MORE=(1 + 1)"]
    assert popc.main([*flags, str(text)]) == 0
    assert "  n: uint32, 6" in capsys.readouterr().out
    before = {*tmp_path.iterdir()}
    assert popc.main([str(text), "-o", str(tmp_path / "a.gp")]) == 1
    assert f"leave out -o, and give graph.addCodelets the text, {text}" in capsys.readouterr().err
    assert {*tmp_path.iterdir()} == before


def test_it_says_when_there_is_nothing_to_list_or_to_compile_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "a.cpp"
    text.write_text("int answer() { return 42; }")
    assert popc.main([str(text)]) == 1
    assert "no class there derives from Vertex" in capsys.readouterr().err
    for compiler, message in (
        ("no-such-compiler", "there is no C++ compiler: 'no-such-compiler' is not found"),
        ("false", "false ended with code 1 and no message"),
        ("'c++", "cannot be read: No closing quotation"),
    ):
        monkeypatch.setenv("CXX", compiler)
        assert popc.main([str(text)]) == 1
        assert message in capsys.readouterr().err
