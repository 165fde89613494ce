"""A provider on one client with botocore's Stubber, for answers that moto never gives."""

from dataclasses import dataclass
from typing import Any

from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.provider import SweepPace
from vcdl.fleet.settings import FleetSettings

SETTINGS = FleetSettings.model_validate(
    {
        "name": "stubbed",
        "cloud": "aws",
        "project": {"url": "https://boinc.example.org/mine/", "account_key_env": "VCDL_TEST_KEY"},
        "capacity": {"unit": "vcpu", "target": 40},
        "instances": {"types": ["m5.2xlarge"]},
        "places": [{"region": "us-east-1"}],
    }
)


@dataclass
class OneClient:
    """A session with one client."""

    made: Any

    def client(self, service: str, **_: Any) -> Any:
        return self.made


def provider_on(client: Any) -> AwsProvider:
    return AwsProvider(SETTINGS, OneClient(client), SweepPace(0.0, 5.0))
