"""Moto's server in this process as AWS, for real boto3 clients, with preemptions and pools without capacity.

Known to be unfaithful: `create_fleet` launches in the first override only; units that are no multiple of its weight
are rounded in moto's own way (10 at 8 give one instance); spot requests stay active after their instance.
"""

import base64
import contextlib
import gzip
import itertools
import logging
import os
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ACCOUNT = "123456789012"
REGIONS = ("us-east-1", "us-west-2", "eu-west-1")
_IMAGES = Path(__file__).with_name("images.json")
os.environ.setdefault("MOTO_AMIS_PATH", str(_IMAGES))  # read when moto is imported, whose own list is long

Place = tuple[str, str]
"""A type and a zone."""


@dataclass
class MotoCloud:
    """AWS."""

    session: Any
    """A boto3.Session."""
    empty: set[Place] = field(default_factory=set)
    """Types and zones without capacity."""
    templates: list[Mapping[str, Any]] = field(default_factory=list)
    """Requests for launch templates."""

    def client(self, region: str = "us-east-1") -> Any:
        return self.session.client("ec2", region_name=region)

    def preempt(self, instance_id: str, region: str = "us-east-1") -> None:
        """Take a spot instance back, as AWS does."""
        from moto.ec2.models.instances import StateReason

        instance = self._backend(region).get_instance(instance_id)
        instance.terminate()
        code = "Server.SpotInstanceTermination"
        instance.state_reason = StateReason(f"{code}: Spot instance termination", code)
        instance._reason = f"{code}: Spot instance termination"

    def forget(self, instance_id: str, region: str = "us-east-1") -> None:
        """Remove a terminated instance, as AWS does after an hour."""
        for reservation in self._backend(region).reservations.values():
            reservation.instances = [one for one in reservation.instances if one.id != instance_id]

    def user_data(self, instance_id: str, region: str = "us-east-1") -> str:
        answer = self.client(region).describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
        return gzip.decompress(base64.b64decode(answer["UserData"]["Value"])).decode()

    def withhold_capacity(self) -> None:
        """Make `empty` effective for all clients that the session makes from now on."""
        withheld: list[Mapping[str, Any]] = []
        asked: list[Mapping[str, Any]] = []

        def drop(params: dict[str, Any], **_: Any) -> None:
            withheld.clear()
            asked.clear()
            zones = {s["SubnetId"]: s["AvailabilityZone"] for s in self._subnets()}
            for config in params["LaunchTemplateConfigs"]:
                is_empty = [(o["InstanceType"], zones[o["SubnetId"]]) in self.empty for o in config["Overrides"]]
                withheld.extend(itertools.compress(config["Overrides"], is_empty))
                config["Overrides"] = [o for o, gone in zip(config["Overrides"], is_empty, strict=True) if not gone]
                asked.extend(config["Overrides"])
            params["LaunchTemplateConfigs"] = [c for c in params["LaunchTemplateConfigs"] if c["Overrides"]]

        def none_left(**_: Any) -> Any:
            answer = {"ResponseMetadata": {"HTTPHeaders": {}}, "FleetId": "fleet-0", "Instances": []}
            return None if asked else (SimpleNamespace(status_code=200), answer)

        def refuse(parsed: dict[str, Any], **_: Any) -> None:
            parsed["Errors"] = [
                {
                    "LaunchTemplateAndOverrides": {"Overrides": override},
                    "Lifecycle": "spot",
                    "ErrorCode": "InsufficientInstanceCapacity",
                    "ErrorMessage": "There is no Spot capacity available that matches your request.",
                }
                for override in withheld
            ]

        self.session.events.register("provide-client-params.ec2.CreateFleet", drop)
        self.session.events.register("before-call.ec2.CreateFleet", none_left)
        self.session.events.register("after-call.ec2.CreateFleet", refuse)

    def _subnets(self) -> list[Mapping[str, Any]]:
        from moto.ec2.models import ec2_backends

        return [
            {"SubnetId": subnet.id, "AvailabilityZone": subnet.availability_zone}
            for backend in ec2_backends[ACCOUNT].values()
            for subnet in backend.describe_subnets()
        ]

    def _backend(self, region: str) -> Any:
        from moto.ec2.models import ec2_backends

        return ec2_backends[ACCOUNT][region]


def few_regions(session: Any) -> Any:
    """The session of an account with few enabled regions: moto fills each region when it is asked."""

    def keep_some(parsed: dict[str, Any], **_: Any) -> None:
        parsed["Regions"] = [region for region in parsed["Regions"] if region["RegionName"] in REGIONS]

    session.events.register("after-call.ec2.DescribeRegions", keep_some)
    return session


@contextlib.contextmanager
def moto_cloud() -> Iterator[MotoCloud]:
    """The server, in an environment in which boto3 can reach nothing else."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # Servers in one process share their content: remove what an earlier file's tests left.
    urllib.request.urlopen(f"http://{host}:{port}/moto-api/reset", data=b"").close()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        cloud = MotoCloud(few_regions(boto3.Session()))
        event = "provide-client-params.ec2.CreateLaunchTemplate"
        cloud.session.events.register(event, lambda params, **_: cloud.templates.append(params))
        yield cloud
    server.stop()
