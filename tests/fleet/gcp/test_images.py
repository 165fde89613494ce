"""Baking on the fake Compute Engine, through the real client library."""

from typing import Any

import pytest

from tests.fleet.fake_cloud import Clock
from tests.fleet.gcp.conftest import QUICK, OpenFleet
from tests.fleet.gcp.fake_gce import FakeGce
from vcdl.errors import FleetError
from vcdl.fleet.bake import UBUNTU, Bake, baking_settings, remove_image
from vcdl.fleet.gcp.provider import GcpProvider
from vcdl.fleet.machine import setup_hash

pytestmark = pytest.mark.server


@pytest.fixture
def bake(gce: FakeGce, clock: Clock, open_fleet: OpenFleet) -> Bake:
    settings = baking_settings(open_fleet().settings, UBUNTU)
    gce.compute.said = f"[  88.0] setup.sh[1]: vcdl-setup: ready as an image {setup_hash(settings, UBUNTU)}\n"
    provider = GcpProvider(settings, clock=clock, pace=QUICK)
    return Bake(settings, UBUNTU, provider, print, clock=clock, every_s=0.0)


def test_one_image_for_all_regions_and_nothing_else_is_left(gce: FakeGce, bake: Bake, open_fleet: OpenFleet) -> None:
    (image,) = bake.run()
    assert image.id == f"projects/vcdl-test/global/images/vcdl-bake-night-1-{bake._setup}"
    assert (image.region, image.is_ready, image.base, image.gb) == ("", True, UBUNTU, 20)
    (made,) = gce.compute.images.values()
    (life,) = gce.compute.lives
    assert made["sourceDisk"] == f"projects/vcdl-test/zones/{life.id.replace('/', '/disks/')}"
    assert made["labels"] == {"team": "vision", "vcdl-fleet": "_bake_night_1", "vcdl-setup": bake._setup}
    assert life.type == "e2-standard-8", "the cheapest"
    assert gce.compute.ids() == ()
    assert bake.run() == (image,)
    assert open_fleet().look().lines() == ()
    assert open_fleet().look(every_fleet=True).lines() == (f"image {image.id}",)
    assert remove_image(open_fleet(), image, 0.0) == ()
    assert gce.compute.images == {}


def test_a_refusal_while_the_image_is_made_is_told(gce: FakeGce, bake: Bake) -> None:
    insert = gce.compute.insert_image

    def over_quota(query: Any, body: Any) -> Any:
        done = insert(query, body)
        gce.compute.images.clear()
        done["error"] = {"errors": [{"code": "QUOTA_EXCEEDED", "message": "Quota 'IMAGES' exceeded."}]}
        return done

    gce.compute.insert_image = over_quota  # type: ignore[method-assign]
    with pytest.raises(FleetError, match="QUOTA_EXCEEDED: Quota 'IMAGES' exceeded"):
        bake.run()
    assert gce.compute.ids() == ()


def test_an_image_that_there_is_already_is_no_error(gce: FakeGce, bake: Bake) -> None:
    bake._launch()
    assert bake.instance is not None
    for _ in range(2):
        bake.provider.make_image(bake.instance, bake._setup, UBUNTU)
    assert len(gce.compute.images) == 1
    next(iter(gce.compute.images.values()))["status"] = "FAILED"
    assert bake.provider.images()[0].failure == "its state is FAILED"
