"""Launches on Compute Engine: the requests, their results, and the problems of a launch that falls short."""

import base64
import gzip
from dataclasses import replace
from typing import Any

import pytest

from tests.fleet.gcp.conftest import OpenFleet
from tests.fleet.gcp.fake_gce import FakeGce
from vcdl.fleet.gcp.provider import GcpProvider
from vcdl.fleet.instance import Pool
from vcdl.fleet.provider import LaunchResult
from vcdl.fleet.refusal import ProblemKind

pytestmark = pytest.mark.server

GPU_IMAGE = "image=projects/mine/global/images/gpu"
TOKEN = "6f1c7a52-93b1-4a57-9d0e-2b8a8f5f0c11"


def launch(fleet: GcpProvider, units: int = 40, token: str = TOKEN) -> LaunchResult:
    return fleet.launch(sorted(fleet.pools()), units, token, "#cloud-config\n")


def only_machine(gce: FakeGce) -> dict[str, Any]:
    (id,) = gce.compute.ids()
    return gce.compute.machines[id]


def test_a_machine_is_a_spot_machine_that_is_deleted_when_it_is_preempted(fleet: GcpProvider, gce: FakeGce) -> None:
    launch(fleet, units=1)
    machine = only_machine(gce)
    assert machine["scheduling"] == {
        "provisioningModel": "SPOT",
        "preemptionNoticeDuration": {"seconds": "120"},
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "maxRunDuration": {"seconds": str(24 * 3600 + 900 + 600)},
    }
    assert machine["labels"] == {"vcdl-fleet": "night_1", "vcdl-launch": TOKEN, "team": "vision"}
    assert machine["name"].startswith("vcdl-night-1-")
    metadata = {item["key"]: item["value"] for item in machine["metadata"]["items"]}
    assert metadata.pop("user-data-encoding") == "base64"
    assert gzip.decompress(base64.b64decode(metadata.pop("user-data"))) == b"#cloud-config\n"
    assert metadata == {"block-project-ssh-keys": "TRUE"}
    shielded = machine["shieldedInstanceConfig"]
    assert shielded == {"enableSecureBoot": True, "enableVtpm": True, "enableIntegrityMonitoring": True}
    assert "serviceAccounts" not in machine
    assert machine["networkInterfaces"] == [
        {"network": "global/networks/default", "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}]}
    ]
    (disk,) = machine["disks"]
    assert disk["autoDelete"]
    assert disk["initializeParams"]["diskType"] == "pd-balanced"
    assert "ubuntu-2404" in disk["initializeParams"]["sourceImage"]


def test_a_machine_on_demand_is_deleted_at_its_age_too(fleet: GcpProvider, gce: FakeGce) -> None:
    pools = [replace(pool, on_demand=True) for pool in sorted(fleet.pools())]
    (launched,) = fleet.launch(pools, 1, TOKEN, "#cloud-config\n").instances
    scheduling = only_machine(gce)["scheduling"]
    assert (scheduling["provisioningModel"], scheduling["instanceTerminationAction"]) == ("STANDARD", "DELETE")
    assert "preemptionNoticeDuration" not in scheduling, "only a preemptible machine takes it"
    assert launched.pool.on_demand


@pytest.mark.parametrize(
    ("place", "interface"),
    [
        ("network: lab", {"network": "global/networks/lab"}),
        ("subnets: [inner]", {"subnetwork": "regions/us-central1/subnetworks/inner"}),
        (
            "network: projects/h/global/networks/n, subnets: [projects/h/regions/us-central1/subnetworks/s]",
            {"network": "projects/h/global/networks/n", "subnetwork": "projects/h/regions/us-central1/subnetworks/s"},
        ),
    ],
)
def test_network_keys_are_in_the_request(
    open_fleet: OpenFleet, gce: FakeGce, place: str, interface: dict[str, str]
) -> None:
    launch(open_fleet(f"places=[{{region: us-central1, {place}}}]", "public_address=false"), units=1)
    assert only_machine(gce)["networkInterfaces"] == [interface]
    assert only_machine(gce)["tags"] == {"items": ["vcdl-fleet"]}


def test_gpus_are_added_to_the_machine(open_fleet: OpenFleet, gce: FakeGce) -> None:
    fleet = open_fleet(
        "instances.types=[n1-standard-8+2xnvidia-tesla-t4]", "capacity={unit: gpu, target: 2}", GPU_IMAGE
    )
    launched = launch(fleet, units=2)
    assert only_machine(gce)["guestAccelerators"] == [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 2}]
    assert [(one.pool.type, one.gpus) for one in launched.instances] == [("n1-standard-8+2xnvidia-tesla-t4", 2)]


def test_a_series_that_boots_from_hyperdisks_only_gets_one(open_fleet: OpenFleet, gce: FakeGce) -> None:
    launch(open_fleet("instances.types=[n4-standard-8]"), units=1)
    assert only_machine(gce)["disks"][0]["initializeParams"]["diskType"] == "hyperdisk-balanced"


def test_types_that_count_alike_are_asked_for_together(open_fleet: OpenFleet, gce: FakeGce) -> None:
    fleet = open_fleet("instances.types=[e2-standard-8, n2-standard-8, n1-standard-8]")
    gce.compute.exhaust("us-central1-a", "e2-standard-8", left=1)
    gce.compute.exhaust("us-central1-b", "e2-standard-8", left=1)
    gce.compute.exhaust("us-central1-a", "n1-standard-8", left=0)
    launched = launch(fleet)
    assert gce.calls.count("bulk_insert") == 1
    assert len(launched.instances) == 5
    assert launched.problems == ()


def test_the_next_group_makes_up_for_an_empty_one(open_fleet: OpenFleet, gce: FakeGce) -> None:
    fleet = open_fleet(
        "instances.types=[e2-standard-8, n2-standard-16]", "places=[{region: us-central1, zones: [us-central1-a]}]"
    )
    gce.compute.exhaust("us-central1-a", "e2-standard-8", left=2)
    launched = launch(fleet)
    assert [instance.vcpus for instance in launched.instances] == [8, 8, 16, 16]
    assert [(problem.pool, problem.kind) for problem in launched.problems] == [
        (Pool("gcp", "e2-standard-8", "us-central1", "us-central1-a"), ProblemKind.NO_CAPACITY)
    ]
    assert "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: us-central1-a" in launched.problems[0].message


def test_pools_that_were_not_tried_are_not_blamed(fleet: GcpProvider, gce: FakeGce) -> None:
    gce.compute.exhaust("us-central1-a", "e2-standard-8", left=1)
    gce.compute.tries_one_pool = True
    launched = launch(fleet)
    assert len(launched.instances) == 1
    assert [problem.pool for problem in launched.problems] == [
        Pool("gcp", "e2-standard-8", "us-central1", "us-central1-a")
    ]


@pytest.mark.parametrize(("left", "words"), [(0, "VM_MIN_COUNT_NOT_REACHED"), (2, "it made 2 of 5 machines")])
def test_an_unexplained_shortage_is_one_of_all_pools(fleet: GcpProvider, gce: FakeGce, left: int, words: str) -> None:
    """Otherwise every pass would ask for the same again."""
    gce.compute.exhaust("us-central1-a", "e2-standard-8", left)
    gce.compute.tries_one_pool = True
    gce.compute.says_why = False
    launched = launch(fleet)
    assert len(launched.instances) == left
    assert {problem.pool for problem in launched.problems} == set(fleet.pools())
    assert {problem.kind for problem in launched.problems} == {ProblemKind.NO_CAPACITY}
    assert words in launched.problems[0].message


def test_a_quota_is_no_shortage(fleet: GcpProvider, gce: FakeGce) -> None:
    gce.compute.quota_vcpus["us-central1"] = 20
    launched = launch(fleet)
    assert len(launched.instances) == 2
    assert {problem.kind for problem in launched.problems} == {ProblemKind.QUOTA}
    assert "Quota 'CPUS' exceeded. Limit: 20.0" in launched.problems[0].message


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (503, "ZONE_RESOURCE_POOL_EXHAUSTED", ProblemKind.NO_CAPACITY),
        (403, "quotaExceeded", ProblemKind.QUOTA),
        (400, "invalid", ProblemKind.BAD_REQUEST),
        (404, "notFound", ProblemKind.BAD_REQUEST),
        (403, "rateLimitExceeded", ProblemKind.THROTTLED),
        (429, "", ProblemKind.THROTTLED),
        (403, "forbidden", ProblemKind.NOT_AUTHORISED),
        (503, "backendError", ProblemKind.UNAVAILABLE),
        (500, "internalError", ProblemKind.UNAVAILABLE),
    ],
)
def test_refusals_have_their_kinds(
    fleet: GcpProvider, gce: FakeGce, status: int, reason: str, kind: ProblemKind
) -> None:
    gce.fail_next("bulk_insert", status, reason, "the words of the cloud")
    launched = launch(fleet)
    assert launched.instances == ()
    assert {problem.pool for problem in launched.problems} == set(fleet.pools())
    assert {problem.kind for problem in launched.problems} == {kind}
    assert "the words of the cloud" in launched.problems[0].message


def test_when_a_region_is_at_fault_its_other_groups_are_not_tried(open_fleet: OpenFleet, gce: FakeGce) -> None:
    gce.fail_next("bulk_insert", 429, "rateLimitExceeded")
    launch(open_fleet("instances.types=[e2-standard-8, n2-standard-16]"))
    assert gce.calls.count("bulk_insert") == 1


def test_a_lost_answer_launches_nothing_twice(fleet: GcpProvider, gce: FakeGce) -> None:
    gce.lose_answer("bulk_insert")
    assert len(launch(fleet).instances) == 5
    assert len(gce.compute.ids()) == 5


def test_machines_that_cannot_be_listed_yet_are_found_later(fleet: GcpProvider, gce: FakeGce) -> None:
    gce.fail_next("list_instances", 503, "backendError")
    launched = launch(fleet)
    assert {problem.kind for problem in launched.problems} == {ProblemKind.UNAVAILABLE}
    assert len(fleet.find()) == 5
