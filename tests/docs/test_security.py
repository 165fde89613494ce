"""SECURITY.md: each test that is said to hold an attack off is there, and each caller has its row."""

import re

from tests.places import ROOT

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[a-z_/]+\.py)::(test_\w+)`")


def test_each_test_that_is_named_is_there() -> None:
    named = TEST.findall(TEXT)
    assert len(named) >= 30
    missing = [
        f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_each_row_of_what_was_tried_names_a_test() -> None:
    rows = TEXT.partition("## What was tried")[2].partition("\n## ")[0].splitlines()
    rows = [row for row in rows if row.startswith("| ")][2:]
    assert len(rows) >= 20
    assert [row for row in rows if not TEST.search(row)] == []


def test_each_kind_of_caller_has_a_row() -> None:
    table = TEXT.partition("## Who can reach what")[2].partition("\n## ")[0]
    callers = {line.split("|")[1].strip().split(",")[0] for line in table.splitlines() if line.startswith("| ")}
    assert {
        *("visitor", "reader", "submitter", "token of a worker", "pilot in a shared folder", "volunteer", "operator"),
    } <= callers
