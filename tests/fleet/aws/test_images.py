"""Baking on moto's AWS: the requests that are sent, and the images, copies and snapshots that come of it."""

import base64
import gzip
from collections.abc import Callable

import pytest

from tests.fleet.aws.conftest import QUICK
from tests.fleet.aws.moto_cloud import MotoCloud
from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.bake import UBUNTU, Bake, baking_settings, remove_image
from vcdl.fleet.machine import setup_hash
from vcdl.fleet.provider import BakedImage, baking_name
from vcdl.fleet.settings import FleetSettings

pytestmark = pytest.mark.server

Providers = Callable[..., AwsProvider]
PLACES = "places=[{region: us-east-1}, {region: us-west-2}]"


Bakes = Callable[[FleetSettings], Bake]


@pytest.fixture(scope="module")
def oven(cloud: MotoCloud) -> MotoCloud:
    """The cloud, where an instance is set up at once."""
    cloud.bakes()
    return cloud


@pytest.fixture
def baking(oven: MotoCloud) -> Bakes:
    oven.sent.clear()

    def make(settings: FleetSettings) -> Bake:
        changed = baking_settings(settings, UBUNTU)
        oven.said = f"vcdl-setup: ready as an image {setup_hash(changed, UBUNTU)}\n"
        return Bake(changed, UBUNTU, AwsProvider(changed, oven.session, QUICK), print, every_s=0.0)

    return make


def test_an_image_for_each_region_and_nothing_else_is_left(
    cloud: MotoCloud, provider_of: Providers, baking: Bakes
) -> None:
    fleet = provider_of(PLACES, "instances.types=[c5.2xlarge, t3.2xlarge]", "tags={team: vision}")
    bake = baking(fleet.settings)
    images = bake.run()
    assert [image.region for image in images] == ["us-east-1", "us-west-2"]
    assert all((image.setup, image.base, image.is_ready) == (bake._setup, UBUNTU, True) for image in images)
    assert bake.instance is not None
    assert bake.instance.pool.type == "t3.2xlarge"
    created, copied = cloud.sent
    assert (created["Action"], created["NoReboot"], created["InstanceId"]) == ("CreateImage", "true", bake.instance.id)
    assert (copied["SourceRegion"], copied["SourceImageId"]) == ("us-east-1", images[0].id)
    name = baking_name(fleet.settings.name)
    for request in cloud.sent:
        for number, kind in enumerate(("image", "snapshot"), start=1):
            assert request[f"TagSpecification.{number}.ResourceType"] == kind
            tags = {request[f"TagSpecification.{number}.Tag.{n}.Value"] for n in (1, 2, 3)}
            assert tags == {"vision", name, bake._setup}
    assert not any(line.startswith(("instance", "launch template", "volume")) for line in bake.provider.look().lines())
    assert bake.run() == images, "they are found"
    assert fleet.look().lines() == (), "down leaves images alone"
    assert not fleet.find(), "no pass takes it for capacity"


def test_the_instance_has_no_key_and_ends_with_its_power(
    cloud: MotoCloud, provider_of: Providers, baking: Bakes
) -> None:
    fleet = provider_of()
    bake = baking(fleet.settings)
    bake._launch()
    assert bake.instance is not None
    (shown,) = cloud.client().describe_instances(InstanceIds=[bake.instance.id])["Reservations"][0]["Instances"]
    assert "InstanceLifecycle" not in shown, "on demand"
    assert {tag["Key"] for tag in shown["Tags"]} >= {"vcdl-fleet", "vcdl-on-demand"}
    asked = cloud.templates[-1]
    assert baking_name(fleet.settings.name) in asked["LaunchTemplateName"]
    data = asked["LaunchTemplateData"]
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    text = gzip.decompress(base64.b64decode(data["UserData"])).decode()
    assert "account_boinc" not in text
    assert f"VCDL_BAKE={bake._setup}" in text
    assert any(bake.instance.id in line for line in fleet.look().lines()), "down of the fleet finds it"
    assert fleet.sweep() == ()
    assert not any(instance.is_live for instance in bake.provider.find())


def test_a_list_shows_images_and_snapshots_and_a_removal_takes_both(
    cloud: MotoCloud, provider_of: Providers, baking: Bakes
) -> None:
    fleet = provider_of()
    bake = baking(fleet.settings)
    (image,) = bake.run()
    backend = cloud._backend("us-east-1").amis[image.id]
    backend.state = "failed"
    failed = BakedImage(image.id, "us-east-1", image.setup, UBUNTU, 15, False, "failed", image.snapshots)
    assert bake.provider.images() == (failed,)
    tags = [{"Key": "vcdl-fleet", "Value": baking_name(fleet.settings.name)}]
    cloud.client().create_tags(Resources=list(image.snapshots), Tags=tags)  # as AWS does by the request
    assert {str(one) for one in image.leftovers} <= set(fleet.look(every_fleet=True).lines())
    assert len(image.leftovers) == 2
    assert remove_image(fleet, image, 0.0) == ()
    assert bake.provider.images() == ()
