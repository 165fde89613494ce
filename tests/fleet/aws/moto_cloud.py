"""Moto's server in this process as AWS, for real boto3 clients, with preemptions.

Known to be unfaithful: `create_fleet` launches in the first override only; units that are no multiple of its weight
are rounded in moto's own way (10 at 8 give one instance); spot requests stay active after their instance.
"""

import base64
import contextlib
import gzip
import logging
import os
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ACCOUNT = "123456789012"
REGIONS = ("us-east-1", "us-west-2", "eu-west-1")
_IMAGES = Path(__file__).with_name("images.json")
os.environ.setdefault("MOTO_AMIS_PATH", str(_IMAGES))  # read when moto is imported, whose own list is long


@dataclass
class MotoCloud:
    """AWS."""

    session: Any
    """A boto3.Session."""
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
