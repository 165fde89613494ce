"""The promises of every cloud: EC2 in moto, and a fake Compute Engine, each through its real client library."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fleet.aws.conftest import QUICK
from tests.fleet.aws.moto_cloud import MotoCloud
from tests.fleet.fleet_files import settings_of
from tests.fleet.gcp.conftest import GCP
from tests.fleet.gcp.conftest import QUICK as QUICK_GCP
from tests.fleet.gcp.fake_gce import FakeGce
from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.gcp.connection import ENDPOINT_VARIABLE
from vcdl.fleet.gcp.provider import GcpProvider
from vcdl.fleet.provider import Provider
from vcdl.testing.clouds import CloudContract, OpenFleet


class TestEc2(CloudContract):
    """The contract, with names that no other test's fleets have, as all share one moto."""

    @pytest.fixture
    def open_fleet(self, cloud: MotoCloud, tmp_path: Path) -> OpenFleet:
        unique = uuid4().hex[:8]

        def open_one(name: str) -> Provider:
            settings = settings_of(tmp_path, f"name={name}-{unique}", "instances.types=[m5.2xlarge]")
            return AwsProvider(settings, cloud.session, QUICK)

        return open_one

    @pytest.fixture
    def settle(self) -> Callable[[], None]:
        return lambda: None


class TestComputeEngine(CloudContract):
    """The contract; a machine that was ended is gone once the fake has settled."""

    @pytest.fixture
    def gce(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGce]:
        with FakeGce() as server:
            monkeypatch.setenv(ENDPOINT_VARIABLE, server.url)
            yield server

    @pytest.fixture
    def open_fleet(self, gce: FakeGce, tmp_path: Path) -> OpenFleet:
        return lambda name: GcpProvider(settings_of(tmp_path, f"name={name}", text=GCP), pace=QUICK_GCP)

    @pytest.fixture
    def settle(self, gce: FakeGce) -> Callable[[], None]:
        return gce.compute.settle
