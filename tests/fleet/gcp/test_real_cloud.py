"""One Spot machine on the real Compute Engine, for about a cent. Skipped without VCDL_GCP_SMOKE_PROJECT."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet_files import settings_of
from tests.fleet.gcp.conftest import GCP
from vcdl.fleet.gcp.connection import ENDPOINT_VARIABLE
from vcdl.fleet.gcp.provider import GcpProvider

PROJECT = os.environ.get("VCDL_GCP_SMOKE_PROJECT")
REGION = os.environ.get("VCDL_GCP_SMOKE_REGION", "us-central1")

pytestmark = [
    pytest.mark.skipif(not PROJECT, reason="VCDL_GCP_SMOKE_PROJECT names no project of Google's cloud"),
    pytest.mark.timeout(900),
]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcpProvider]:
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    settings = settings_of(
        tmp_path,
        f"name=smoke-{uuid.uuid4().hex[:8]}",
        f"gcp_project={PROJECT}",
        "instances.types=[e2-standard-2, n2-standard-2, n2d-standard-2]",
        f"places=[{{region: {REGION}}}]",
        "capacity={unit: instance, target: 1}",
        text=GCP,
    )
    provider = GcpProvider(settings)
    yield provider
    assert provider.sweep() == ()


def test_one_machine_is_launched_found_marked_and_swept(fleet: GcpProvider) -> None:
    launched = fleet.launch(sorted(fleet.pools()), 1, str(uuid.uuid4()), "#cloud-config\n")
    assert [instance.vcpus for instance in launched.instances] == [2], launched.problems
    (found,) = fleet.find()
    assert found.is_live
    fleet.lease([found.id], 1_000_000.0)
    assert [instance.until_s for instance in fleet.find()] == [1_000_000.0]
    assert fleet.sweep() == ()
