"""The pools of a fleet in moto: subnets, zones that offer a type, images, requirements."""

from collections.abc import Callable

import pytest

from tests.fleet.aws.moto_cloud import MotoCloud
from vcdl.errors import FleetError
from vcdl.fleet.aws.catalogue import UBUNTU
from vcdl.fleet.aws.provider import AwsProvider

pytestmark = pytest.mark.server

Providers = Callable[..., AwsProvider]
EIGHT = "instances={requirements: {vcpus: {min: 8, max: 8}}}"


def subnets(cloud: MotoCloud, region: str = "us-east-1") -> dict[str, str]:
    """The default subnet of each zone."""
    return {s["AvailabilityZone"]: s["SubnetId"] for s in cloud.client(region).describe_subnets()["Subnets"]}


def test_without_subnets_each_zone_of_the_default_vpc_that_offers_the_type_is_a_pool(
    cloud: MotoCloud, provider_of: Providers
) -> None:
    pools = provider_of("instances.types=[t3.2xlarge]").pools()
    offers = cloud.client().describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["t3.2xlarge"]}]
    )["InstanceTypeOfferings"]
    expected = {(offer["Location"], subnets(cloud)[offer["Location"]]) for offer in offers}
    assert {(pool.zone, pool.subnet) for pool in pools} == expected
    assert len(expected) < len(subnets(cloud)), "one zone of us-east-1 is too old for it"
    assert {(kind.vcpus, kind.memory_gb, kind.gpus) for kind in pools.values()} == {(8, 32.0, 0)}


def test_only_the_first_of_two_subnets_in_one_zone_is_used(cloud: MotoCloud, provider_of: Providers) -> None:
    client = cloud.client()
    vpc = client.describe_vpcs()["Vpcs"][0]["VpcId"]
    extra = client.create_subnet(VpcId=vpc, CidrBlock="172.31.200.0/24", AvailabilityZone="us-east-1a")["Subnet"][
        "SubnetId"
    ]
    default = subnets(cloud)["us-east-1b"]
    first = client.describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1a"]}])["Subnets"]
    listed = [extra, *(s["SubnetId"] for s in first if s["SubnetId"] != extra), default]
    try:
        pools = provider_of(f"places=[{{region: us-east-1, subnets: [{', '.join(listed)}]}}]").pools()
    finally:
        client.delete_subnet(SubnetId=extra)
    assert {(pool.zone, pool.subnet) for pool in pools} == {("us-east-1a", extra), ("us-east-1b", default)}


def test_requirements_choose_spot_types_that_can_boot_the_image(provider_of: Providers) -> None:
    pools = provider_of("instances={requirements: {vcpus: {min: 8, max: 8}, memory_gb: {min: 30, max: 32}}}").pools()
    names = {pool.type for pool in pools}
    assert {"t3.2xlarge", "m5.2xlarge"} <= names
    assert {(kind.vcpus, kind.gpus) for kind in pools.values()} == {(8, 0)}
    assert not names & {"m6g.2xlarge", "t4g.2xlarge"}, "arm64"
    assert not any("metal" in name for name in names)


def test_a_burstable_type_counts_with_its_baseline(provider_of: Providers) -> None:
    types = "instances.types=[t3.2xlarge, m5.2xlarge]"
    pools = provider_of(types).pools()
    assert {(kind.name, kind.units("vcpu")) for kind in pools.values()} == {("t3.2xlarge", 3), ("m5.2xlarge", 8)}


def test_gpu_requirements_choose_only_gpus_that_cuda_runs_on(provider_of: Providers) -> None:
    pools = provider_of(
        "capacity={unit: gpu, target: 1}",
        "instances={requirements: {vcpus: {max: 8}, gpus: {min: 1, max: 1}}}",
        f"image={UBUNTU}",
    ).pools()
    names = {pool.type for pool in pools}
    assert "g4dn.xlarge" in names
    assert not any(name.startswith("g4ad.") for name in names), "AMD"
    assert {kind.gpus for kind in pools.values()} == {1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["instances.types=[t3.2xlarge, t9.huge]"], "no place of this fleet offers t9.huge as"),
        (["instances.types=[t4g.2xlarge]"], "offers t4g.2xlarge as .* that can boot the image"),
        (["places=[{region: us-east-1, subnets: [subnet-nowhere]}]"], "us-east-1 has no subnet subnet-nowhere"),
        (["image=ami-00000000000000000"], "there is no image ami-0+ in us-east-1: an id belongs to one region"),
        (["image=somebody/something"], "there is no image somebody/something in us-east-1"),
        ([f"image={UBUNTU.replace('amd64', 'arm64')}", EIGHT], "is for arm64"),
        (
            ["instances.types=[g4dn.xlarge, m5.2xlarge]"],
            "g4dn.xlarge: GPUs are used only with `capacity > unit: gpu`",
        ),
        (["image=something"], "neither an AMI's id .* nor OWNER/NAME"),
    ],
)
def test_unknown_things_are_named_with_what_to_change(provider_of: Providers, changes: list[str], message: str) -> None:
    with pytest.raises(FleetError, match=message):
        provider_of(*changes).pools()


def test_a_region_that_the_account_has_not_enabled_is_named(provider_of: Providers) -> None:
    with pytest.raises(FleetError, match="af-south-1: not enabled in this account"):
        provider_of("places=[{region: us-east-1}, {region: af-south-1}]").find()


def test_a_place_may_have_an_image_of_its_own(cloud: MotoCloud, provider_of: Providers) -> None:
    provider = provider_of("places=[{region: us-east-1, image: ami-0123456789abcdef0}]", "image=ami-00000000000000000")
    (made,) = provider.launch(list(provider.pools()), 8, "t", "#cloud-config\n").instances
    answer = cloud.client().describe_instances(InstanceIds=[made.id])
    assert answer["Reservations"][0]["Instances"][0]["ImageId"] == "ami-0123456789abcdef0"


def test_a_region_without_a_default_vpc_asks_for_subnets(cloud: MotoCloud, provider_of: Providers) -> None:
    client = cloud.client("eu-west-1")
    for subnet in client.describe_subnets()["Subnets"]:
        client.delete_subnet(SubnetId=subnet["SubnetId"])
    with pytest.raises(FleetError, match="eu-west-1 has no default subnets: list some under `places > subnets`"):
        provider_of("places=[{region: eu-west-1}]").pools()
