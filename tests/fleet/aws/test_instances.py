"""Instances as moto shows them: live, draining, ended by us, ended by AWS, gone without a tag."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from tests.fleet.aws.moto_cloud import MotoCloud
from tests.fleet.aws.stubbed import provider_on
from vcdl.errors import FleetError
from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.instance import Ending, Instance, InstanceState

pytestmark = pytest.mark.server

Providers = Callable[..., AwsProvider]
NOBODY = "i-0123456789abcdef0"


def launched(provider: AwsProvider, units: int = 16) -> list[Instance]:
    return list(provider.launch(list(provider.pools()), units, f"token-{units}", "#cloud-config\n").instances)


def by_id(provider: AwsProvider) -> dict[str, Instance]:
    return {instance.id: instance for instance in provider.find()}


def test_a_vanished_instance_does_not_keep_the_others_from_being_terminated(
    cloud: MotoCloud, provider_of: Providers
) -> None:
    provider = provider_of()
    first, second = launched(provider)
    provider.find()
    cloud.forget(first.id)
    provider.terminate([first.id, second.id])
    assert by_id(provider)[second.id].state is InstanceState.GONE


def test_a_protected_instance_does_not_keep_the_others_from_being_terminated(
    cloud: MotoCloud, provider_of: Providers
) -> None:
    provider = provider_of()
    others = launched(provider, 24)
    protected = others.pop(1)
    cloud.client().modify_instance_attribute(InstanceId=protected.id, DisableApiTermination={"Value": True})
    with pytest.raises(FleetError, match="OperationNotPermitted"):
        provider.terminate([others[0].id, protected.id, others[1].id])
    found = by_id(provider)
    assert [found[one.id].is_live for one in (*others, protected)] == [False, False, True]


def test_an_instance_that_takes_no_more_tags_does_not_keep_the_others_from_their_lease(
    cloud: MotoCloud, provider_of: Providers
) -> None:
    provider = provider_of()
    others = launched(provider, 24)
    full = others.pop(1)
    (wanted,) = [{"Name": "resource-id", "Values": [full.id]}]
    has = [tag for tag in cloud.client().describe_tags(Filters=[wanted])["Tags"] if not tag["Key"].startswith("aws:")]
    tags = [{"Key": f"key-{number}", "Value": ""} for number in range(50 - len(has))]
    cloud.client().create_tags(Resources=[full.id], Tags=tags)
    with pytest.raises(FleetError, match="TagLimitExceeded"):
        provider.lease([others[0].id, full.id, others[1].id], 1_000_000.0)
    found = by_id(provider)
    assert [found[one.id].until_s for one in others] == [1_000_000.0] * 2


def test_a_lease_is_a_tag_that_the_instance_can_read_and_that_is_renewed(
    cloud: MotoCloud, provider_of: Providers
) -> None:
    provider = provider_of()
    provider.keeper = "mill-1"
    first, second = launched(provider)
    assert by_id(provider)[first.id].keeper == "mill-1"
    provider.keeper = "mill-2"
    provider.lease([first.id, NOBODY], 1_000_000.9)
    assert [by_id(provider)[one.id].keeper for one in (first, second)] == ["mill-2", "mill-1"]
    provider_of().lease([first.id, second.id], 2_000_000.0)
    found = by_id(provider)
    assert (found[first.id].until_s, found[second.id].until_s) == (2_000_000.0, 2_000_000.0)
    answer = cloud.client().describe_tags(Filters=[{"Name": "resource-id", "Values": [first.id]}])
    assert ("vcdl-until", "2000000") in [(tag["Key"], tag["Value"]) for tag in answer["Tags"]]


def test_the_console_output_is_text(provider_of: Providers) -> None:
    provider = provider_of()
    (made,) = launched(provider, 8)
    assert "Linux" in provider.console(made.id)
    with pytest.raises(FleetError, match="NotFound"):
        provider.console(NOBODY)


LAUNCHED = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
ENDED = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def item(state: str, code: str, reason: str = "") -> dict[str, Any]:
    return {
        "InstanceId": NOBODY, "InstanceType": "m5.2xlarge", "LaunchTime": LAUNCHED, "SpotInstanceRequestId": "sir-1",
        "Placement": {"AvailabilityZone": "us-east-1a"}, "State": {"Name": state}, "StateReason": {"Code": code},
        "StateTransitionReason": reason,
    }  # fmt: skip


TYPES = {
    "InstanceTypes": [
        {"InstanceType": "m5.2xlarge", "VCpuInfo": {"DefaultVCpus": 8}, "MemoryInfo": {"SizeInMiB": 32768}}
    ]
}


@pytest.mark.parametrize(
    ("state", "code", "reason", "expected"),
    [
        ("terminated", "Server.SpotInstanceTermination", "", (InstanceState.GONE, Ending.PREEMPTED)),
        ("shutting-down", "Server.SpotInstanceTermination", "", (InstanceState.STOPPING, Ending.PREEMPTED)),
        (
            "terminated", "Client.InstanceInitiatedShutdown", "User initiated (2026-11-21 09:30:00 GMT)",
            (InstanceState.GONE, Ending.OURS),
        ),
        (
            "terminated", "Client.UserInitiatedShutdown", "User initiated (2026-11-21 09:30:00 GMT)",
            (InstanceState.GONE, Ending.OURS),
        ),
        ("terminated", "Server.InternalError", "", (InstanceState.GONE, Ending.UNKNOWN)),
        ("stopped", "", "", (InstanceState.STOPPED, Ending.UNKNOWN)),
    ],
)  # fmt: skip
def test_the_instance_tells_who_ended_it_and_the_spot_request_when(
    state: str, code: str, reason: str, expected: tuple[InstanceState, Ending]
) -> None:
    client = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(client) as stub:
        stub.add_response("describe_regions", {"Regions": [{"RegionName": "us-east-1"}]})
        stub.add_response("describe_instances", {"Reservations": [{"Instances": [item(state, code, reason)]}]})
        stub.add_response("describe_instance_types", TYPES)
        if state == "terminated" and not reason:
            status = {"Code": "instance-terminated-no-capacity", "UpdateTime": ENDED}
            request = {"SpotInstanceRequestId": "sir-1", "Status": status}
            stub.add_response("describe_spot_instance_requests", {"SpotInstanceRequests": [request]})
        stub.add_response("describe_instances", {"Reservations": [{"Instances": [item(state, code, reason)]}]})
        provider = provider_on(client)
        (found,) = provider.find()
        (again,) = provider.find()
    assert (found.state, found.ending) == expected
    assert found.ended_s == (ENDED.timestamp() if state == "terminated" else None)
    assert again == found, "what is known of an end is not asked for again"


def test_the_clock_of_the_cloud_is_in_its_answers(provider_of: Providers, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, provider = time.time, provider_of()
    monkeypatch.setattr("vcdl.fleet.aws.region.time", SimpleNamespace(time=lambda: now_s() - 7200, monotonic=now_s))
    provider.find()
    assert provider.clock_offset_s == pytest.approx(7200, abs=5)
