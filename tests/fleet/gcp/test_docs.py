"""docs/fleet-gcp.md agrees with the code."""

import re
from pathlib import Path

import pytest

from tests.fleet.fleet_files import fleet_file
from tests.fleet.gcp.fake_gce import FakeGce
from tests.places import DOCS
from vcdl.fleet.gcp.connection import kind_of
from vcdl.fleet.gcp.provider import GcpProvider
from vcdl.fleet.refusal import ProblemKind
from vcdl.fleet.settings import load_fleet_settings

DOCUMENT = (DOCS / "fleet-gcp.md").read_text(encoding="utf-8")


@pytest.mark.server
def test_the_fleet_file_of_the_documentation_has_pools(gce: FakeGce, tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    assert found is not None
    pools = GcpProvider(load_fleet_settings(fleet_file(tmp_path, found[1]))).pools()
    assert {pool.region for pool in pools} == {"us-central1", "europe-west4"}


@pytest.mark.parametrize(
    ("words", "kind"),
    [("no capacity", ProblemKind.NO_CAPACITY), ("quota", ProblemKind.QUOTA), ("throttled", ProblemKind.THROTTLED)],
)  # fmt: skip
def test_the_codes_of_the_table_are_of_that_kind(words: str, kind: ProblemKind) -> None:
    row = next(line for line in DOCUMENT.splitlines() if f"| {words}:" in line)
    codes = re.findall(r"`([A-Za-z_]+)`", row.split("|")[1])
    assert codes
    assert {kind_of(code, 503) for code in codes} == {kind}
