"""One preemptible machine on a real cloud, for about a cent; see tests/README.md.

Skipped without VCDL_AWS_SMOKE_REGION, and without VCDL_GCP_SMOKE_PROJECT.
"""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet_files import AWS, settings_of
from tests.fleet.gcp.conftest import GCP
from vcdl.fleet.gcp.connection import ENDPOINT_VARIABLE
from vcdl.fleet.instance import Ending, InstanceState
from vcdl.fleet.open import open_provider
from vcdl.fleet.provider import Provider

REGION = os.environ.get("VCDL_AWS_SMOKE_REGION")
PROJECT = os.environ.get("VCDL_GCP_SMOKE_PROJECT")
SETTINGS = {
    AWS: ("instances.types=[t3.small, t3a.small, t2.medium]", f"places=[{{region: {REGION}}}]"),
    GCP: (
        f"gcp_project={PROJECT}",
        "instances.types=[e2-standard-2, n2-standard-2, n2d-standard-2]",
        f"places=[{{region: {os.environ.get('VCDL_GCP_SMOKE_REGION', 'us-central1')}}}]",
    ),
}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(
    params=[
        pytest.param(AWS, id="aws", marks=pytest.mark.skipif(not REGION, reason="no VCDL_AWS_SMOKE_REGION")),
        pytest.param(GCP, id="gcp", marks=pytest.mark.skipif(not PROJECT, reason="no VCDL_GCP_SMOKE_PROJECT")),
    ]
)
def fleet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    named = f"name=smoke-{uuid.uuid4().hex[:8]}", "capacity={unit: instance, target: 1}"
    provider = open_provider(settings_of(tmp_path, *named, *SETTINGS[request.param], text=request.param))
    yield provider
    assert provider.sweep() == ()


def test_one_machine_is_launched_once_found_marked_and_swept(fleet: Provider) -> None:
    token = str(uuid.uuid4())
    launched = fleet.launch(sorted(fleet.pools()), 1, token, "#cloud-config\n")
    assert len(launched.instances) == 1, launched.problems
    time.sleep(10)  # until EC2 shows it
    again = fleet.launch(sorted(fleet.pools()), 1, token, "#cloud-config\n")
    assert [i.id for i in again.instances] == [i.id for i in launched.instances]
    (found,) = fleet.find()
    assert found.is_live
    fleet.lease([found.id], 1_000_000.0)
    assert [instance.until_s for instance in fleet.find()] == [1_000_000.0]
    assert fleet.sweep() == ()
    for gone in fleet.find():  # AWS shows it for an hour
        assert (gone.state, gone.ending) == (InstanceState.GONE, Ending.OURS)
