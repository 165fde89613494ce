"""Launches in moto through real boto3: the requests and their results."""

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from tests.fleet.aws.moto_cloud import MotoCloud
from tests.fleet.aws.stubbed import SETTINGS, OneClient
from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.instance import InstanceState, Pool
from vcdl.fleet.provider import LaunchResult

pytestmark = pytest.mark.server

USER_DATA = "#cloud-config\nhostname: trainer\n"
Providers = Callable[..., AwsProvider]


def launch(provider: AwsProvider, units: int, token: str = "token-1") -> LaunchResult:
    return provider.launch(list(provider.pools()), units, token, USER_DATA)


def described(cloud: MotoCloud, launched: LaunchResult) -> list[dict[str, Any]]:
    ids = [instance.id for instance in launched.instances]
    answer = cloud.client().describe_instances(InstanceIds=ids)
    return [item for reservation in answer["Reservations"] for item in reservation["Instances"]]


def test_forty_vcpus_are_five_spot_instances_of_eight_with_tags_and_user_data(
    cloud: MotoCloud, provider_of: Providers
) -> None:
    provider = provider_of("tags={team: vision}")
    launched = launch(provider, 40)
    assert launched.problems == ()
    assert [(i.vcpus, i.pool.type, i.state) for i in launched.instances] == [
        (8, "m5.2xlarge", InstanceState.PENDING)
    ] * 5
    for item in described(cloud, launched):
        assert item["InstanceLifecycle"] == "spot"
        tags = {tag["Key"]: tag["Value"] for tag in item["Tags"]}
        assert tags == {"vcdl-fleet": provider.settings.name, "vcdl-launch": "token-1", "team": "vision"}
        assert cloud.user_data(item["InstanceId"]) == USER_DATA
    assert {i.id for i in provider.find()} == {i.id for i in launched.instances}


def template(cloud: MotoCloud, fleet: str) -> list[dict[str, Any]]:
    """Those that launches asked for; none outlives its launch."""
    tag = {"Key": "vcdl-fleet", "Value": fleet}
    assert not cloud.client().describe_launch_templates(Filters=[{"Name": "tag:vcdl-fleet", "Values": [fleet]}])[
        "LaunchTemplates"
    ], "a template shows the account key"
    asked = [it for it in cloud.templates if tag in it["TagSpecifications"][0]["Tags"]]
    return [one["LaunchTemplateData"] for one in {it["LaunchTemplateName"]: it for it in asked}.values()]


def test_a_template_requires_imdsv2_shows_tags_and_has_no_bid(cloud: MotoCloud, provider_of: Providers) -> None:
    provider = provider_of("disk_gb=30")
    launch(provider, 8)
    (data,) = template(cloud, provider.settings.name)
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["MetadataOptions"]["InstanceMetadataTags"] == "enabled", "the agent reads the drain mark there"
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert data["BlockDeviceMappings"][0]["Ebs"] == {
        "VolumeSize": 30,
        "VolumeType": "gp3",
        "Encrypted": True,
        "DeleteOnTermination": True,
    }
    assert data["ImageId"] == "ami-0123456789abcdef1", "the newest Ubuntu for x86"
    assert "InstanceMarketOptions" not in data
    assert "MaxPrice" not in str(data)


def test_only_t_types_get_cpu_credits_and_never_unlimited_ones(cloud: MotoCloud, provider_of: Providers) -> None:
    provider = provider_of("instances.types=[t3.2xlarge, c5.2xlarge]")
    launch(provider, 16)
    assert sorted(str(data.get("CreditSpecification")) for data in template(cloud, provider.settings.name)) == sorted(
        ["None", str({"CpuCredits": "standard"})]
    )


def test_the_same_content_gives_the_same_template_and_other_user_data_another(
    cloud: MotoCloud, provider_of: Providers
) -> None:
    provider = provider_of()
    for token in ("a", "b"):
        launch(provider, 8, token)
    assert len(template(cloud, provider.settings.name)) == 1
    provider.launch(list(provider.pools()), 8, "c", USER_DATA + "# more\n")
    assert len(template(cloud, provider.settings.name)) == 2


def test_the_next_region_of_the_file_is_asked_for_what_the_last_one_lacked(provider_of: Providers) -> None:
    session = boto3.Session()
    nothing = {"ResponseMetadata": {"HTTPHeaders": {}}, "FleetId": "fleet-0", "Instances": []}

    def answered(context: dict[str, Any], **_: object) -> object:
        return (SimpleNamespace(status_code=200), nothing) if context["client_region"] == "us-west-2" else None

    session.events.register("before-call.ec2.CreateFleet", answered)
    provider = AwsProvider(provider_of("places=[{region: us-west-2}, {region: us-east-1}]").settings, session)
    assert [i.pool.region for i in launch(provider, 16).instances] == ["us-east-1"] * 2


def test_a_token_chooses_among_more_pools_than_a_fleet_may_name() -> None:
    from vcdl.fleet.aws.catalogue import Image
    from vcdl.fleet.aws.launch import RegionalLaunch
    from vcdl.fleet.aws.region import AwsRegion
    from vcdl.fleet.instance import InstanceType

    pools = {Pool("aws", f"m{n}.large", "r", "ra", "s"): InstanceType(f"m{n}.large", 2, 8.0) for n in range(400)}
    client = boto3.client("ec2", region_name="us-east-1")
    place = AwsRegion(OneClient(client), "r"), SETTINGS, Image("ami-1", "x86_64", "/dev/sda1", 8)
    one, same, other = (RegionalLaunch(*place, pools, 8, token, "").pools for token in ("a", "a", "b"))
    assert len(one) == 300
    assert one == same
    assert one != other


def test_network_keys_are_in_the_template_and_no_address_is_given_on_request(
    cloud: MotoCloud, provider_of: Providers
) -> None:
    client = cloud.client()
    group = client.create_security_group(GroupName=f"g-{random.random()}", Description="none")["GroupId"]
    provider = provider_of(f"places=[{{region: us-east-1, security_groups: [{group}]}}]", "public_address=false")
    (item,) = described(cloud, launch(provider, 8))
    (data,) = template(cloud, provider.settings.name)
    (interface,) = data["NetworkInterfaces"]
    assert (interface["Groups"], interface["AssociatePublicIpAddress"]) == ([group], False)
    assert "SecurityGroupIds" not in data, "AWS refuses both"
    assert item["SubnetId"] in {pool.subnet for pool in provider.pools()}


def test_pools_on_demand_launch_no_spot_instance(cloud: MotoCloud, provider_of: Providers) -> None:
    provider = provider_of()
    pools = [replace(pool, on_demand=True) for pool in provider.pools()]
    launched = provider.launch(pools, 8, "token-1", USER_DATA)
    (item,) = described(cloud, launched)
    assert item.get("InstanceLifecycle") != "spot"
    (found,) = provider.find()
    assert found.pool.on_demand
    assert launched.instances[0].pool.on_demand
    (data,) = template(cloud, provider.settings.name)
    kinds = [kind["ResourceType"] for kind in data["TagSpecifications"]]
    assert "spot-instances-request" not in kinds, "AWS refuses tags of a spot request that there is none of"
