"""After `down` nothing is left, whatever was made, in any region, also by a killed process."""

import contextlib
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from tests.fleet.aws.moto_cloud import MotoCloud, few_regions
from tests.memory_grid import Killed
from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.provider import SweepPace

pytestmark = pytest.mark.server

Providers = Callable[..., AwsProvider]


def launch(provider: AwsProvider, token: str = "t") -> None:
    provider.launch(list(provider.pools()), 16, token, "#cloud-config\n")


def test_a_sweep_deletes_everything_with_the_tag_and_checks_it(cloud: MotoCloud, provider_of: Providers) -> None:
    provider = provider_of("instances.types=[t3.2xlarge, c5.2xlarge]")
    launch(provider)
    tags = [{"Key": "vcdl-fleet", "Value": provider.settings.name}]
    client = cloud.client()
    client.create_volume(
        AvailabilityZone="us-east-1a", Size=8, TagSpecifications=[{"ResourceType": "volume", "Tags": tags}]
    )
    subnet = client.describe_subnets()["Subnets"][0]["SubnetId"]
    client.create_network_interface(
        SubnetId=subnet, TagSpecifications=[{"ResourceType": "network-interface", "Tags": tags}]
    )
    data = {"LaunchTemplateName": f"t-{provider.settings.name}", "LaunchTemplateData": {"ImageId": "ami-1"}}
    client.create_launch_template(**data, TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}])
    nouns = {line.rsplit(" ", 3)[0] for line in provider.look().lines()}
    assert nouns == {"instance", "spot request", "launch template", "volume", "network interface"}
    assert provider.sweep() == ()
    assert provider.look().lines() == ()
    assert not any(instance.is_live for instance in provider.find())
    assert provider.sweep() == (), "twice is as good as once"


def test_a_template_that_a_crash_left_before_its_fleet_is_swept(cloud: MotoCloud, provider_of: Providers) -> None:
    def kill(**_: object) -> None:
        raise Killed

    session = boto3.Session()
    for call in ("CreateFleet", "DeleteLaunchTemplate"):
        session.events.register(f"before-call.ec2.{call}", kill)
    provider = AwsProvider(provider_of().settings, session)
    with contextlib.suppress(Killed):
        launch(provider)
    (left,) = provider_of().look().lines()
    assert left.startswith("launch template lt-")
    assert provider_of().sweep() == ()


def test_an_instance_that_is_shown_late_is_swept(cloud: MotoCloud, provider_of: Providers) -> None:
    """EC2 may hide new instances for seconds: one empty look proves nothing."""
    provider = provider_of()
    provider.pools()
    late = AwsProvider(
        provider.settings, session := few_regions(boto3.Session()), SweepPace(every_s=0.01, at_most_s=30.0)
    )
    looks = iter([True])

    def launched_after_the_first_look(**_: object) -> None:
        if next(looks, False):
            launch(provider)

    # A look ends with launch templates.
    session.events.register("after-call.ec2.DescribeLaunchTemplates", launched_after_the_first_look)
    assert late.sweep() == ()
    assert provider.look().lines() == ()


def test_a_sweep_that_cannot_end_something_names_it(cloud: MotoCloud, provider_of: Providers) -> None:
    provider = provider_of()
    launch(provider)
    (first, _) = sorted(instance.id for instance in provider.find())
    cloud.client().modify_instance_attribute(InstanceId=first, DisableApiTermination={"Value": True})
    stuck = AwsProvider(provider.settings, cloud.session, SweepPace(every_s=0.01, at_most_s=0.5))
    assert stuck.sweep() == (f"instance {first} in us-east-1",)
    cloud.client().modify_instance_attribute(InstanceId=first, DisableApiTermination={"Value": False})
    assert provider.sweep() == ()


def test_a_region_that_is_away_keeps_no_other_from_being_swept(cloud: MotoCloud, provider_of: Providers) -> None:
    """The fleet file does not even name it."""
    launch(provider_of())
    session = few_regions(boto3.Session())

    def cut_off(request: Any, **_: object) -> None:
        if "eu-west-1" in request.headers.get("Authorization", b"").decode():
            raise EndpointConnectionError(endpoint_url="https://ec2.eu-west-1.amazonaws.com")

    session.events.register("before-send.ec2", cut_off)
    provider = AwsProvider(provider_of().settings, session, SweepPace(every_s=0.01, at_most_s=1.0))
    (left,) = provider.sweep()
    assert "EndpointConnectionError" in left
    assert "eu-west-1" in left
    assert not any(instance.is_live for instance in provider_of().find())
    assert provider_of().sweep() == (), "again, when the region is back"
