"""A fake Compute Engine for each test, and providers that call it through the real client library."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.fake_cloud import Clock
from tests.fleet.fleet_files import settings_of
from tests.fleet.gcp.fake_gce import FakeGce
from vcdl.fleet.gcp.connection import ENDPOINT_VARIABLE
from vcdl.fleet.gcp.provider import GcpProvider
from vcdl.fleet.provider import SweepPace

GCP = """\
name: night_1
cloud: gcp
gcp_project: vcdl-test
project: {url: https://boinc.example.org/mine/, account_key_env: VCDL_TEST_KEY}
capacity: {unit: vcpu, target: 40, max: 80}
instances: {types: [e2-standard-8, n2-standard-8]}
places:
  - {region: us-central1, zones: [us-central1-a, us-central1-b]}
tags: {team: vision}
"""

QUICK = SweepPace(0.02, 20.0, 1)
OpenFleet = Callable[..., GcpProvider]
"""`open_fleet("capacity.unit=gpu")`: a new provider, as in another process."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gce(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGce]:
    with FakeGce(clock=clock) as server:
        server.compute.page_size = 7  # so that every test turns pages
        monkeypatch.setenv(ENDPOINT_VARIABLE, server.url)
        yield server


@pytest.fixture
def open_fleet(gce: FakeGce, clock: Clock, tmp_path: Path) -> OpenFleet:
    def open_one(*overrides: str, pace: SweepPace = QUICK) -> GcpProvider:
        settings = settings_of(tmp_path, *overrides, text=GCP)
        return GcpProvider(settings, clock=clock, pace=pace)

    return open_one


@pytest.fixture
def fleet(open_fleet: OpenFleet) -> GcpProvider:
    return open_fleet()
