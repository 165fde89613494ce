"""docs/fleet-aws.md and deploy/aws agree with the code: fleet file, policies."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

import vcdl.fleet.aws
from tests.fleet.aws.moto_cloud import MotoCloud
from tests.fleet.fleet_files import fleet_file
from tests.places import DOCS, ROOT
from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.settings import load_fleet_settings

DOCUMENT = (DOCS / "fleet-aws.md").read_text(encoding="utf-8")
POLICIES = ROOT / "deploy" / "aws"
SOURCES = Path(vcdl.fleet.aws.__file__).parent
ASKED_BY_AWS_ITSELF = {"ec2:RunInstances", "iam:CreateServiceLinkedRole"}
"""Actions that `create_fleet` performs in the caller's name."""


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", DOCUMENT, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.server
def test_the_fleet_file_of_the_documentation_has_pools(cloud: MotoCloud, tmp_path: Path) -> None:
    settings = load_fleet_settings(fleet_file(tmp_path, block("yaml")))
    assert {pool.region for pool in AwsProvider(settings, cloud.session).pools()} == {"us-east-1", "us-west-2"}


def statements() -> list[dict[str, Any]]:
    policy = json.loads((POLICIES / "fleet-policy.json").read_text())
    return list(policy["Statement"])


def actions(statement: dict[str, Any]) -> list[str]:
    return [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]


def calls() -> Iterator[str]:
    """The actions of all calls in the sources, where each is a literal, as AwsRegion takes it."""
    words = {
        node.value
        for path in SOURCES.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for service in ("ec2", "pricing"):
        names = boto3.client(service, region_name="us-east-1").meta.method_to_api_mapping
        yield from (f"{service}:{names[word]}" for word in words & names.keys())


@pytest.mark.slow
def test_the_policy_allows_each_call_that_is_made_and_no_other() -> None:
    allowed = {action for statement in statements() for action in actions(statement)}
    assert allowed == {*calls(), *ASKED_BY_AWS_ITSELF}


def test_the_policy_ends_only_what_is_a_fleets() -> None:
    for statement in statements():
        if any(re.match("ec2:(Terminate|Delete|Cancel|Deregister)", action) for action in actions(statement)):
            assert statement["Condition"] == {"StringLike": {"aws:ResourceTag/vcdl-fleet": "*"}}
