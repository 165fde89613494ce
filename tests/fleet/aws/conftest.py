"""AWS for these tests: each has a fleet with a name of its own."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.aws.moto_cloud import MotoCloud
from tests.fleet.fleet_files import settings_of
from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.provider import SweepPace

_NUMBERS = itertools.count(1)
QUICK = SweepPace(every_s=0.01, at_most_s=20.0)


@pytest.fixture
def provider_of(cloud: MotoCloud, tmp_path: Path) -> Callable[..., AwsProvider]:
    """A provider of this test's fleet, with changes to its file."""
    name = f"fleet-{next(_NUMBERS)}"

    def make(*overrides: str) -> AwsProvider:
        settings = settings_of(tmp_path, f"name={name}", "instances.types=[m5.2xlarge]", *overrides)
        return AwsProvider(settings, cloud.session, QUICK)

    return make
