"""AWS's refusals, as exceptions and within the answer of a launch, with their kinds; and botocore's repetitions."""

import importlib
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.stub import ANY, Stubber

from tests.fleet.aws.stubbed import SETTINGS, OneClient, provider_on
from vcdl.errors import FleetError, FleetNotAuthorised, FleetUnavailable
from vcdl.fleet.aws.catalogue import Image
from vcdl.fleet.aws.launch import RegionalLaunch
from vcdl.fleet.aws.provider import AwsProvider
from vcdl.fleet.aws.region import AwsRegion, batches, kind_of
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.provider import LaunchResult
from vcdl.fleet.refusal import ProblemKind

POOL = Pool("aws", "m5.2xlarge", "us-east-1", "us-east-1a", "subnet-1")
OTHER = Pool("aws", "c5.2xlarge", "us-east-1", "us-east-1b", "subnet-2")
POOLS = {POOL: InstanceType("m5.2xlarge", 8, 32.0), OTHER: InstanceType("c5.2xlarge", 8, 16.0)}
KINDS = [  # with those of tests/fleet/test_cloud_docs.py
    ("InsufficientInstanceCapacity", 500, ProblemKind.NO_CAPACITY),
    ("VolumeLimitExceeded", 400, ProblemKind.QUOTA),
    ("RequestLimitExceeded", 503, ProblemKind.THROTTLED),
    ("UnauthorizedOperation", 403, ProblemKind.NOT_AUTHORISED),
    ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", 403, ProblemKind.NOT_AUTHORISED),
    ("InternalError", 500, ProblemKind.UNAVAILABLE),
    ("NeverHeardOf", 503, ProblemKind.UNAVAILABLE),
    ("InvalidSubnetID.NotFound", 400, ProblemKind.BAD_REQUEST),
    ("NeverHeardOf", 400, ProblemKind.BAD_REQUEST),
]


@pytest.fixture(scope="module")
def client() -> Any:
    return boto3.client("ec2", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")


@pytest.mark.parametrize(("code", "status", "kind"), KINDS)
def test_every_code_has_its_kind(code: str, status: int, kind: ProblemKind) -> None:
    assert kind_of(code, status) is kind


def launch(client: Any) -> LaunchResult:
    image = Image("ami-1", "x86_64", "/dev/sda1", 8)
    region = AwsRegion(OneClient(client), "us-east-1")
    return RegionalLaunch(region, SETTINGS, image, POOLS, 16, "token", "#cloud-config\n").run()


def template_made(stub: Stubber) -> None:
    stub.add_response("create_launch_template", {"LaunchTemplate": {"LaunchTemplateName": "vcdl-stubbed-1"}})


@pytest.mark.parametrize(("code", "status", "kind"), KINDS[::3])
def test_a_refusal_of_a_whole_launch_is_a_problem_and_no_exception(
    client: Any, code: str, status: int, kind: ProblemKind
) -> None:
    with Stubber(client) as stub:
        template_made(stub)
        stub.add_client_error("create_fleet", code, "No,\n really   not", status)
        launched = launch(client)
    assert launched.instances == ()
    assert {problem.kind for problem in launched.problems} == {kind}
    assert all(f"{code}: No, really not" in problem.message for problem in launched.problems), "on one line"
    assert {problem.pool for problem in launched.problems} == {POOL, OTHER}, "the region's pools are left alone"


def test_a_type_that_has_the_whole_launch_refused_is_blamed_for_it(client: Any) -> None:
    pool = "ResourcePoolType(instanceType=c5.2xlarge, os=generic)"
    said = f"Unsupported instancetypes specified in the batch request[{pool}]"
    with Stubber(client) as stub:
        template_made(stub)
        stub.add_client_error("create_fleet", "InvalidFleetConfig", said)
        (problem,) = launch(client).problems
    assert (problem.pool, problem.kind) == (OTHER, ProblemKind.BAD_REQUEST)


def test_an_image_that_its_owner_withdrew_is_looked_for_again(client: Any) -> None:
    subnet = {"SubnetId": "subnet-1", "AvailabilityZone": "us-east-1a"}
    offer = {"InstanceType": "m5.2xlarge", "Location": "us-east-1a"}
    kind = {"InstanceType": "m5.2xlarge", "VCpuInfo": {"DefaultVCpus": 8}, "MemoryInfo": {"SizeInMiB": 32768}}
    with Stubber(client) as stub:
        stub.add_response("describe_regions", {"Regions": [{"RegionName": "us-east-1"}]})
        stub.add_response("describe_subnets", {"Subnets": [subnet]})
        stub.add_response("describe_instance_type_offerings", {"InstanceTypeOfferings": [offer]})
        stub.add_response("describe_images", {"Images": [{"ImageId": "ami-old", "Architecture": "x86_64"}]})
        stub.add_response("describe_instance_types", {"InstanceTypes": [kind]})
        provider = provider_on(client)
        pools = list(provider.pools())
        stub.add_response("describe_instances", {"Reservations": []})
        stub.add_response("create_launch_template", {})
        stub.add_client_error("create_fleet", "InvalidAMIID.NotFound", "The image id '[ami-old]' does not exist")
        (problem,) = provider.launch(pools, 8, "a", "#cloud-config\n").problems
        stub.add_response("describe_instances", {"Reservations": []})
        stub.add_response("describe_images", {"Images": [{"ImageId": "ami-new", "Architecture": "x86_64"}]})
        stub.add_response(
            "create_launch_template",
            {},
            {"LaunchTemplateName": ANY, "TagSpecifications": ANY, "LaunchTemplateData": OfImage("ami-new")},
        )
        stub.add_response("create_fleet", {"FleetId": "fleet-1"})
        assert provider.launch(pools, 8, "b", "#cloud-config\n").problems == ()
    assert problem.kind is ProblemKind.BAD_REQUEST


class OfImage:
    """Equals the data of a launch template with this image."""

    def __init__(self, image: str) -> None:
        self._image = image

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and other["ImageId"] == self._image


def refused(code: str, pool: Pool) -> dict[str, Any]:
    override = {"InstanceType": pool.type, "SubnetId": pool.subnet}
    return {
        "LaunchTemplateAndOverrides": {"Overrides": override},
        "Lifecycle": "spot",
        "ErrorCode": code,
        "ErrorMessage": "for a reason",
    }


def test_errors_within_an_answer_are_assigned_to_pools_beside_the_instances(client: Any) -> None:
    errors = [
        refused("InsufficientInstanceCapacity", POOL),
        refused("InsufficientInstanceCapacity", POOL),
        refused("MaxSpotInstanceCountExceeded", OTHER),
        refused("RequestLimitExceeded", OTHER),
        refused("UnauthorizedOperation", POOL),
    ]
    made = {
        "LaunchTemplateAndOverrides": {"Overrides": {"InstanceType": OTHER.type, "SubnetId": OTHER.subnet}},
        "InstanceIds": ["i-1"],
        "InstanceType": OTHER.type,
    }
    with Stubber(client) as stub:
        template_made(stub)
        stub.add_response("create_fleet", {"FleetId": "fleet-1", "Errors": errors, "Instances": [made]})
        launched = launch(client)
    assert [(instance.id, instance.pool) for instance in launched.instances] == [("i-1", OTHER)]
    assert [(problem.pool, problem.kind) for problem in launched.problems] == [
        (POOL, ProblemKind.NO_CAPACITY),
        (OTHER, ProblemKind.QUOTA),
        *((pool, ProblemKind.THROTTLED) for pool in (OTHER, POOL)),
        *((pool, ProblemKind.NOT_AUTHORISED) for pool in (OTHER, POOL)),
    ], "each once"


@pytest.mark.parametrize(
    ("code", "error", "advice"),
    [
        ("RequestLimitExceeded", FleetUnavailable, "try again later"),
        ("InternalError", FleetUnavailable, "try again later"),
        ("UnauthorizedOperation", FleetNotAuthorised, "docs/fleet-aws.md"),
        ("ExpiredToken", FleetNotAuthorised, "docs/fleet-aws.md"),
        ("VcpuLimitExceeded", FleetError, "Service Quotas"),
        ("InvalidParameterValue", FleetError, "fleet file"),
    ],
)
def test_other_calls_raise_our_errors_with_aws_words_the_region_and_what_to_do(
    client: Any, code: str, error: type[FleetError], advice: str
) -> None:
    with Stubber(client) as stub:
        stub.add_response("describe_regions", {"Regions": [{"RegionName": "us-east-1"}]})
        stub.add_client_error("describe_instances", code, "x" * 5000)
        with pytest.raises(error) as caught:
            provider_on(client).find()
    message = str(caught.value)
    assert f"AWS refused describe_instances in us-east-1: {code}: xxx" in message
    assert advice in message
    assert len(message) < 700


@pytest.mark.slow
def test_without_credentials_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(FleetNotAuthorised, match="NoCredentialsError: Unable to locate credentials"):
        AwsProvider(SETTINGS).find()
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(FleetNotAuthorised, match="nobody"):
        AwsProvider(SETTINGS)


def test_without_the_library_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "vcdl.fleet.aws")
    with pytest.raises(FleetError, match="needs the package boto3: pip install boto3"):
        importlib.import_module("vcdl.fleet.aws")


def test_throttled_and_faulty_calls_are_repeated() -> None:
    answers = [(503, "RequestLimitExceeded"), (500, "InternalError")]
    answered: list[str] = []

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        status, code = answers.pop(0) if answers else (200, "")
        answered.append(code)
        body = f"<Response><Errors><Error><Code>{code}</Code><Message>wait</Message></Error></Errors></Response>"
        if not code:
            region = "<regionInfo><item><regionName>us-east-1</regionName></item></regionInfo>"
            body = f"<Response><reservationSet/>{region}</Response>"
        return AWSResponse(request.url, status, {}, SimpleNamespace(stream=lambda: [body.encode()]))

    session = boto3.Session("key", "secret")
    session.events.register("before-send.ec2", answer)
    assert AwsProvider(SETTINGS, session).find() == ()
    assert answered == ["RequestLimitExceeded", "InternalError", "", ""], "regions, and then instances"


def test_long_lists_are_cut_as_aws_takes_them_and_nothing_is_lost() -> None:
    cut = list(batches(map(str, range(250))))
    assert [len(some) for some in cut] == [100, 100, 50]
    assert [value for some in cut for value in some] == [str(number) for number in range(250)]


def test_a_signature_of_a_wrong_clock_is_told_as_such(client: Any) -> None:
    headers = {"date": format_datetime(datetime.now(UTC) + timedelta(hours=2))}
    with Stubber(client) as stub:
        stub.add_client_error("describe_regions", "RequestExpired", response_meta={"HTTPHeaders": headers})
        with pytest.raises(FleetNotAuthorised, match=r"set this machine's clock: it is (1 h 59|2 h 00) min behind"):
            AwsRegion(OneClient(client), "us-east-1").call("describe_regions")
