"""Fixtures for tests of whole fleets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.aws.moto_cloud import MotoCloud, moto_cloud


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched prices are not those of whoever runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def one_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moto's account has us-east-1 only: a client for each of seventeen regions takes seconds."""
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

    here = [region for region in RegionsAndZonesBackend.regions if region.name == "us-east-1"]
    monkeypatch.setattr(RegionsAndZonesBackend, "regions", here)


@pytest.fixture(scope="module")
def cloud() -> Iterator[MotoCloud]:
    """AWS: one moto server for a file."""
    with moto_cloud() as cloud:
        yield cloud
