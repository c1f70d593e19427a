"""Results of operators, and what they say together."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterable, Sequence
from typing import Any

from tests.torch_operators import compare
from tests.torch_operators.rest import REST
from tests.torch_operators.samples import operators, samples, subject_of

Row = dict[str, Any]
"""Of an operator: `name`, `subject`, `seconds`, `counts` of outcomes by their words, and `why` by
the same words: the first few of its reasons. Or `error`, if there is no result."""

LEFT_OUT, NO_SAMPLES = "left out", "without samples"
_REASONS = 3  # of each kind that a row keeps
_NOTHING_TO_COMPARE = (compare.EXPORT, compare.SKIPPED, LEFT_OUT, NO_SAMPLES)
_WORST_FIRST = (compare.WRONG, compare.MISSING, compare.PASSED, compare.EXPORT, compare.SKIPPED)


def run(name: str, dtypes: Iterable[str], limit: int | None) -> Row:
    """The row of an operator."""
    entry = operators()[name]
    began = time.perf_counter()
    counts: collections.Counter[str] = collections.Counter()
    why: dict[str, list[str]] = {}
    for dtype in dtypes:
        for number, sample in enumerate(samples(entry, dtype, limit)):
            word, reason = compare.compare(sample)
            counts[word] += 1
            reasons = why.setdefault(word, [])
            if reason and len(reasons) < _REASONS:
                reasons.append(f"{dtype} {number}: {reason}")
    seconds = round(time.perf_counter() - began, 1)
    return {
        "name": name, "subject": subject_of(entry), "seconds": seconds, "counts": dict(counts),
        "why": why,
    }  # fmt: skip


def word_of(row: Row) -> str:
    """What came of an operator: the worst of its outcomes that tells anything."""
    if row["name"] in REST:
        return LEFT_OUT
    if "error" in row:
        return compare.WRONG
    return next((word for word in _WORST_FIRST if word in row["counts"]), NO_SAMPLES)


def is_good(row: Row) -> bool:
    """Whether an operator gives what PyTorch gives wherever both give anything."""
    return word_of(row) not in (compare.WRONG, compare.MISSING)


def line_of(row: Row) -> str:
    """A row in one line."""
    word = word_of(row)
    if "error" in row:
        return f"{row['name']}: {word}: {row['error']}"
    reasons = row["why"].get(word) or [""]
    counts = ", ".join(f"{n} {word}" for word, n in row["counts"].items())
    return f"{row['name']}: {counts} ({row['seconds']} s) {reasons[0]}"


def summary(rows: Sequence[Row]) -> str:
    """Counts by subject and outcome, and the operators that are not right."""
    lines: list[str] = []
    for subject in sorted({row.get("subject", "unknown") for row in rows}):
        words = collections.Counter(
            word_of(r) for r in rows if r.get("subject", "unknown") == subject
        )
        exported = sum(n for w, n in words.items() if w not in _NOTHING_TO_COMPARE)
        share = 100 * words[compare.PASSED] / max(exported, 1)
        counts = ", ".join(f"{n} {word}" for word, n in words.most_common())
        lines.append(f"{subject}: {share:.1f} % of {exported} that are exported ({counts})")
    missing: collections.Counter[str] = collections.Counter()
    for row in rows:
        for reason in row.get("why", {}).get(compare.MISSING, ()):
            if word_of(row) == compare.MISSING:
                missing.update(set(reason.split(": ", 1)[1].split()))
    lines += [f"missing in {count}: {name}" for name, count in missing.most_common()]
    lines += [line_of(row) for row in rows if not is_good(row)]
    return "\n".join(lines)
