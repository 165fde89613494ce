"""Fixtures for tests of whole fleets."""

import pytest


@pytest.fixture
def one_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moto's account has us-east-1 only: a client for each of seventeen regions takes seconds."""
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

    here = [region for region in RegionsAndZonesBackend.regions if region.name == "us-east-1"]
    monkeypatch.setattr(RegionsAndZonesBackend, "regions", here)
