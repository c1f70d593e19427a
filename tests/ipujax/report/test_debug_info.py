"""debug.cbor and framework.json: what Graphcore's guides name, beside reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import ReportError
from ipujax.report import Report, auto_report, load
from ipujax.report.debug_info import build_debug_info, encode_cbor

X = np.ones((4, 8), np.float32)


def layers(x: Any) -> Any:
    with jax.named_scope("outer"), jax.named_scope("inner"):
        x = jnp.tanh(x)
    with jax.named_scope("outer"):
        return jnp.exp(x @ x.T)


@pytest.fixture(scope="module")
def report() -> Report:
    return ipu.compile(layers).lower(X).report()


@pytest.mark.parametrize(
    ("value", "encoded"),
    [  # RFC 8949, Appendix A
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (100, "1864"),
        (1000, "1903e8"),
        (1_000_000, "1a000f4240"),
        (1_000_000_000_000, "1b000000e8d4a51000"),
        (18446744073709551615, "1bffffffffffffffff"),
        ("", "60"),
        ("IETF", "6449455446"),
        ('"\\', "62225c"),
        ("\u00fc", "62c3bc"),
        ("\u6c34", "63e6b0b4"),
        ([], "80"),
        ([1, [2, 3], [4, 5]], "8301820203820405"),
        ([*range(1, 26)], "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
        ({}, "a0"),
        ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
    ],
)
def test_cbor_as_its_standard_shows_it(value: Any, encoded: str) -> None:
    assert encode_cbor(value).hex() == encoded


def test_contexts_have_the_keys_that_popart_reads(report: Report) -> None:
    """As graphcore/popart, tests/integration/debug_info_test.py."""
    data: Any = build_debug_info(report)
    texts = data["stringTable"]
    by_id = {context["id"]: context for context in data["contexts"]}
    assert len(by_id) == len(data["contexts"])
    assert {context["layer"] for context in by_id.values()} == {"ipujax"}
    named = {texts[context["name"]].split()[0]: context for context in by_id.values()}

    def scopes(context: Any) -> list[str]:
        above = by_id.get(context["parentId"])
        return [] if above is None else [*scopes(above), texts[above["name"]]]

    assert scopes(named["tanh"]) == ["outer", "inner"]
    assert scopes(named["dot_general"]) == scopes(named["exp"]) == ["outer"]
    assert sum(texts[context["name"]] == "outer" for context in by_id.values()) == 1
    first_line = layers.__code__.co_firstlineno
    for name, line in (("tanh", 2), ("dot_general", 4), ("exp", 4)):
        location = named[name]["location"]
        assert texts[location["fileName"]] == __file__
        assert texts[location["functionName"]] == "layers"
        assert location["lineNumber"] == first_line + line


def test_both_files_of_a_program(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_report, "_written", set())
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    ipu.compile(layers)(X)
    (folder,) = tmp_path.iterdir()
    assert (folder / "debug.cbor").read_bytes() == encode_cbor(build_debug_info(report))
    framework = json.loads((folder / "framework.json").read_text("utf-8"))
    assert framework["framework"] == "ipujax"
    assert framework["jax_version"] == jax.__version__
    assert (framework["program"], framework["target"]) == ("layers", "ipu2")
    assert (framework["num_ipus"], framework["replication_factor"]) == (1, 1)


@pytest.mark.parametrize(
    ("name", "content"),
    [("profile.pop", b"anything"), ("renamed.json", b"SQLite format 3\0" + bytes(84))],
)
def test_a_profile_of_poplar_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    for read in (load, ipu.pva.openReport):
        with pytest.raises(ReportError, match=r"published no format(.|\n)*report\.to_json"):
            read(tmp_path / name)
