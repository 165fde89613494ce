"""docs/fleet-aws.md and docs/fleet-gcp.md have each code of their cloud in the row of its kind."""

import re

import pytest

from tests.places import DOCS
from vcdl.fleet.aws import region
from vcdl.fleet.gcp import connection
from vcdl.fleet.refusal import ProblemKind

KINDS = {"aws": region.kind_of, "gcp": lambda code: connection.kind_of(code, 503)}


@pytest.mark.parametrize(
    ("cloud", "words", "kind"),
    [
        ("aws", "no capacity", ProblemKind.NO_CAPACITY),
        ("aws", "quota", ProblemKind.QUOTA),
        ("aws", "throttled", ProblemKind.THROTTLED),
        ("aws", "not authorised", ProblemKind.NOT_AUTHORISED),
        ("aws", "unavailable", ProblemKind.UNAVAILABLE),
        ("aws", "something in the fleet file", ProblemKind.BAD_REQUEST),
        ("gcp", "no capacity", ProblemKind.NO_CAPACITY),
        ("gcp", "quota", ProblemKind.QUOTA),
        ("gcp", "throttled", ProblemKind.THROTTLED),
    ],
)
def test_the_codes_of_the_table_are_of_that_kind(cloud: str, words: str, kind: ProblemKind) -> None:
    document = (DOCS / f"fleet-{cloud}.md").read_text(encoding="utf-8")
    row = next(line for line in document.splitlines() if f"| {words}" in line)
    codes = re.findall(r"`([A-Za-z_.]+)`", row.split("|")[1])
    assert codes
    assert {KINDS[cloud](code) for code in codes} == {kind}
