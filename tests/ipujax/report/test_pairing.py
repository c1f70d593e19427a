"""Which operations of two reports belong together: for items alone, and for what users change."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipujax.report import Report
from ipujax.report.presentation.compared_report import read_report_parts
from ipujax.report.presentation.comparison import compare_reports
from ipujax.report.presentation.pairing import Item, Pair, pair_items
from tests.ipujax.whatifs import network, pipelined, sharded

MATMUL = Item("matmul 64 x 784 x 512", "/mine/model.py:7 (f)", "x = x @ w", "layer1", "forward")


def partners(first: Sequence[Item], second: Sequence[Item]) -> list[Any]:
    return [pair.members for pair in pair_items(first, second)]


@pytest.mark.parametrize(
    "change",
    [
        {"label": "matmul 128 x 784 x 512"},
        {"label": "matmul 784 x 512, batch of 4"},
        {"origin": "/mine/model.py:7 (renamed)"},
        {"origin": "/mine/model.py:70 (f)"},  # the same text, further down
        {"origin": "/yours/copy.py:9 (f)"},
        {"line_text": "x = x @ w + b"},  # an edited line
        {"order": 3},
    ],
)
def test_what_a_user_changes_keeps_the_pair(change: dict[str, Any]) -> None:
    assert partners([MATMUL], [MATMUL._replace(**change)]) == [((0,), (0,))]


@pytest.mark.parametrize(
    "change",
    [
        {"label": "conv 3x3 16 -> 32"},
        {"scope": "layer2"},
        {"direction": "backward"},
        {"origin": "/mine/model.py:8 (f)", "line_text": "y = y @ w"},
    ],
)
def test_other_operations_are_no_pair(change: dict[str, Any]) -> None:
    assert partners([MATMUL], [MATMUL._replace(**change)]) == [((0,), ()), ((), (0,))]


def test_paths_to_an_installed_package_do_not_matter() -> None:
    update = MATMUL._replace(line_text="", origin="/a/site-packages/optax/update.py:42 (f)")
    other = update._replace(origin="/b/lib/site-packages/optax/update.py:42 (f)")
    assert partners([update], [other]) == [((0,), (0,))]


def test_several_of_a_line_pair_in_the_order_of_the_program() -> None:
    first = [MATMUL._replace(label=f"matmul 64 x {n}", order=n) for n in (2, 1, 3)]
    second = [MATMUL._replace(label=f"matmul 128 x {n}", order=n) for n in (1, 2, 3)]
    assert partners(first, second) == [((1,), (0,)), ((0,), (1,)), ((2,), (2,))]
    same = [first[1]._replace(order=5), first[0]._replace(order=6)]
    assert partners(first[:2], same) == [((1,), (0,)), ((0,), (1,))]  # each with its equal


def test_more_of_a_kind_pair_all_together() -> None:
    first = [MATMUL._replace(label=f"matmul 64 x {n}", order=n) for n in range(3)]
    second = [MATMUL._replace(label=f"matmul 64 x {n}", order=n) for n in range(4)]
    (pair,) = pair_items(first, second)
    assert pair == Pair("matmul", ((0, 1, 2), (0, 1, 2, 3)))


def test_a_fused_chain_pairs_with_its_parts() -> None:
    chain = [MATMUL._replace(label="subtract, multiply")]
    parts = [MATMUL._replace(label=label) for label in ("subtract", "multiply", "tanh")]
    assert partners(chain, parts) == [((0,), (0, 1)), ((), (2,))]


def test_a_line_is_not_the_one_that_took_its_number() -> None:
    lines = ["q = x @ wq", "k = x @ wk", "v = x @ wv"]
    first = [MATMUL._replace(origin=f"m.py:{i}", line_text=text) for i, text in enumerate(lines)]
    second = [MATMUL._replace(origin=f"m.py:{i + 1}", line_text=t) for i, t in enumerate(lines)]
    # The number 1 is q's of one report and k's of the other: what is equal in text comes first.
    assert partners(first, second) == [((i,), (i,)) for i in range(3)]


def test_titles_say_what_differs() -> None:
    def title(before: str, after: str) -> str:
        (pair,) = pair_items([MATMUL._replace(label=before)], [MATMUL._replace(label=after)])
        return pair.title

    assert title("relu", "relu") == "relu"
    assert title("matmul 64 x 784 x 512", "matmul 128 x 784 x 512") == "matmul 64→128 x 784 x 512"
    assert title("conv 3x3 16 -> 32", "conv 5x5 16 -> 64") == "conv 3x3→5x5 16 -> 32→64"
    assert title("matmul 64 x 784", "matmul 784") == "matmul 64 x 784 → matmul 784"
    assert title("tanh, subtract", "tanh, add") == "tanh, subtract → tanh, add"


LABELS = st.sampled_from(
    ["matmul {0} x {1}", "conv 3x3 {0} -> {1}", "relu", "multiply, add", "copy IPU {0} -> IPU {1}"]
)
ITEMS = st.lists(
    st.builds(
        lambda label, line, scope, direction, m, n: Item(
            label.format(m, n), f"m.py:{line}" if line else "", "", scope, direction
        ),
        LABELS,
        st.integers(0, 3),
        st.sampled_from(["", "a", "a/b"]),
        st.sampled_from(["forward", "backward"]),
        st.integers(1, 9),
        st.integers(1, 9),
    ),
    max_size=12,
)


def in_order(items: Sequence[Item]) -> list[Item]:
    return [item._replace(order=order) for order, item in enumerate(items)]


@given(ITEMS, ITEMS)
def test_every_item_is_in_one_pair(first: list[Item], second: list[Item]) -> None:
    pairs = pair_items(in_order(first), in_order(second))
    for side, items in enumerate((first, second)):
        members = [index for pair in pairs for index in pair.members[side]]
        assert sorted(members) == list(range(len(items)))
    mirrored = pair_items(in_order(second), in_order(first))
    assert {pair.members for pair in pairs} == {pair.members[::-1] for pair in mirrored}


@given(ITEMS, st.permutations(range(10, 19)))
def test_extents_do_not_matter(items: list[Item], extents: list[int]) -> None:
    def resize(label: str) -> str:
        words = [str(extents[int(w) - 1]) if w.isdigit() else w for w in label.split(" ")]
        return " ".join(words)

    resized = [item._replace(label=resize(item.label)) for item in in_order(items)]
    for pair in pair_items(in_order(items), resized):
        assert pair.members[0] == pair.members[1]


# --- what users change ---------------------------------------------------------------------------


def unpaired_share(a: Report, b: Report) -> float:
    """The share of both reports' cycles that is of operations without a partner."""
    pairs = compare_reports(a, b).operations
    alone = whole = 0.0
    for pair in pairs:
        for report, own, others in ((a, *pair.members), (b, *pair.members[::-1])):
            cycles = sum(report.operations[index].cycles for index in own)
            whole += cycles
            alone += 0 if others else cycles
    return alone / whole


@pytest.mark.parametrize(
    ("change", "most"),
    [
        ({"batch": 128}, 0),
        ({"batch": 1}, 0),
        ({"width": 256}, 0),
        ({"dtype": jnp.float16}, 0.03),  # casts
        ({"name": "renamed"}, 0),
        ({"recompute": True}, 0.03),  # activations, which the backward pass has no others of
    ],
    ids=lambda change: "-".join(change) if isinstance(change, dict) else "",
)
def test_operations_have_partners_after(change: dict[str, Any], most: float) -> None:
    assert unpaired_share(network(), network(**change)) <= most


def test_one_more_layer() -> None:
    assert unpaired_share(network(scoped=False), network(scoped=False, layers=4)) == 0
    a, b = network(), network(layers=4)
    for pair in compare_reports(a, b).operations:
        if not pair.members[0]:
            assert all(b.operations[i].scope == "layer3" for i in pair.members[1]) or (
                b.operations[pair.members[1][0]].scope == "layer2"  # which is not the last now
            )


def test_another_optimizer_changes_the_update_alone() -> None:
    a, b = network(), network(optimizer=optax.adam(1e-3))
    for pair in compare_reports(a, b).operations:
        directions = {b.operations[i].direction for i in pair.members[1]}
        assert all(pair.members) or directions == {"update"}


def test_two_ipus_do_what_one_does_and_copies() -> None:
    a, b = sharded(1), sharded(2)
    alone = [pair for pair in compare_reports(a, b).operations if not all(pair.members)]
    assert any(pair.title.startswith("copy IPU") for pair in alone)
    matmuls = [pair for pair in compare_reports(a, b).operations if "matmul" in pair.title]
    assert matmuls
    assert all(map(all, (pair.members for pair in matmuls)))


def test_recomputation_adds_to_the_backward_pass() -> None:
    a, b = pipelined(False), pipelined(True)
    comparison = compare_reports(a, b)
    assert comparison.forward_flops is None  # what is computed again is not more work
    assert unpaired_share(a, b) < 0.05


def test_calls_that_compute_more_are_told() -> None:
    comparison = compare_reports(network(), network(batch=128))
    assert comparison.forward_flops is not None
    assert comparison.forward_flops[1] / comparison.forward_flops[0] == pytest.approx(2, rel=0.01)
    (sentence,) = comparison.describe_work("AB")
    assert sentence.startswith("B computes 2 times as many floating-point operations as A ")
    assert sentence.endswith("so that a longer time is not worse")
    (sentence,) = compare_reports(network(batch=128), network()).describe_work("AB")
    assert sentence.endswith("so that a shorter time is not better")
    assert compare_reports(network(), network(dtype=jnp.float16)).forward_flops is None


@pytest.mark.parametrize("make", [network, lambda: sharded(2), lambda: pipelined(True)])
def test_documents_are_compared_as_reports_are(make: Callable[[], Report]) -> None:
    a, b = network(batch=8), make()
    documents = [json.loads(json.dumps(report.to_dict())) for report in (a, b)]
    parts = map(read_report_parts, documents)
    assert compare_reports(*parts).to_dict() == compare_reports(a, b).to_dict()


@pytest.mark.parametrize("earlier", [[0], [1], [0, 1]])
def test_reports_of_earlier_versions_are_paired_by_names(earlier: list[int]) -> None:
    documents = [network().to_dict(), network(batch=128).to_dict()]
    for side in earlier:
        del documents[side]["sources"]
        for operation in documents[side]["operations"]:
            for key in ("label", "scope", "direction", "number", "call_path"):
                del operation[key]
    a, b = map(Report.from_dict, documents)
    assert unpaired_share(a, b) == 0
    titles = {pair.title for pair in compare_reports(a, b).operations}
    assert "dot_general" in titles
