"""One spot instance on the real AWS, for about a cent. Skipped without VCDL_AWS_SMOKE_REGION; see tests/README.md."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet_files import settings_of
from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.instance import Ending, InstanceState

REGION = os.environ.get("VCDL_AWS_SMOKE_REGION")

pytestmark = [
    pytest.mark.skipif(not REGION, reason="VCDL_AWS_SMOKE_REGION names no region of AWS"),
    pytest.mark.timeout(900),
]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsProvider]:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    settings = settings_of(
        tmp_path,
        f"name=smoke-{uuid.uuid4().hex[:8]}",
        "instances.types=[t3.small, t3a.small, t2.medium]",
        f"places=[{{region: {REGION}}}]",
        "capacity={unit: instance, target: 1}",
    )
    provider = AwsProvider(settings)
    yield provider
    assert provider.sweep() == ()


def test_one_instance_is_launched_once_found_marked_and_swept(fleet: AwsProvider) -> None:
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
    (gone,) = fleet.find()
    assert (gone.state, gone.ending) == (InstanceState.GONE, Ending.OURS)
