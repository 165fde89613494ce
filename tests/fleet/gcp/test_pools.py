"""The pools of a fleet on Compute Engine."""

import re
from pathlib import Path

import pytest

from tests.fleet.fleet_files import fleet_file
from tests.fleet.gcp.conftest import OpenFleet
from tests.fleet.gcp.fake_gce import FakeGce
from tests.places import DOCS
from vcdl.errors import FleetError, FleetUnavailable
from vcdl.fleet.gcp.provider import GcpProvider
from vcdl.fleet.instance import InstanceType, Pool
from vcdl.fleet.settings import load_fleet_settings

pytestmark = pytest.mark.server

GPUS = ("capacity.unit=gpu", "image=projects/mine/global/images/gpu")


def test_each_type_is_a_pool_in_each_zone_that_offers_it(open_fleet: OpenFleet) -> None:
    pools = open_fleet("instances.types=[e2-standard-8, n2d-standard-8]", "places=[{region: us-central1}]").pools()
    zones = {type: sorted(pool.zone[-1] for pool in pools if pool.type == type) for type in {p.type for p in pools}}
    assert zones == {"e2-standard-8": ["a", "b", "c", "f"], "n2d-standard-8": ["a", "b"]}
    assert pools[Pool("gcp", "e2-standard-8", "us-central1", "us-central1-f")] == InstanceType("e2-standard-8", 8, 32.0)


def test_requirements_choose_among_all_types_of_the_zones(open_fleet: OpenFleet) -> None:
    wanted = "instances={requirements: {vcpus: {min: 2, max: 8}, memory_gb: {max: 31}}}"
    # Not e2-micro, whose cores are shared, and not t2a, which is no x86.
    assert {pool.type for pool in open_fleet(wanted).pools()} == {"e2-standard-4", "n1-standard-8"}


def test_gpus_can_be_added_to_a_type_that_comes_with_none(open_fleet: OpenFleet) -> None:
    types = "instances.types=[n1-standard-8+nvidia-tesla-t4, n1-standard-8+2xnvidia-tesla-v100]"
    pools = open_fleet(types, *GPUS).pools()
    assert {(type.name, type.vcpus, type.gpus) for type in pools.values()} == {
        ("n1-standard-8+nvidia-tesla-t4", 8, 1),
        ("n1-standard-8+2xnvidia-tesla-v100", 8, 2),
    }


def test_a_region_that_refuses_is_left_out_and_asked_again_and_all_of_them_raise(
    open_fleet: OpenFleet, gce: FakeGce
) -> None:
    fleet = open_fleet("places=[{region: us-central1}, {region: europe-west4}]")
    gce.fail_next("get_region", 503, "backendError", times=2)
    with pytest.raises(FleetUnavailable, match="backendError"):
        fleet.pools()
    gce.fail_next("get_region", 503, "backendError")
    assert len({pool.region for pool in fleet.pools()}) == 1
    assert {pool.region for pool in fleet.pools()} == {"us-central1", "europe-west4"}


def test_the_fleet_file_of_the_documentation_has_pools(gce: FakeGce, tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(.*?)```", (DOCS / "fleet-gcp.md").read_text(), re.DOTALL)
    assert found is not None
    pools = GcpProvider(load_fleet_settings(fleet_file(tmp_path, found[1]))).pools()
    assert {pool.region for pool in pools} == {"us-central1", "europe-west4"}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "instances.types=[e2-standard-8, n9-standard-8]",
            "no place of this fleet offers n9-standard-8 as preemptible",
        ),
        (
            "instances.types=[t3_2xlarge]",
            "'t3_2xlarge' is not a machine type of Compute Engine; expected one such as n2-standard-8",
        ),
        (
            "instances={requirements: {vcpus: {min: 999}}}",
            "no place of this fleet offers a type that meets `instances > requirements`",
        ),
        (
            "places=[{region: us-centrall}]",
            "Compute Engine has no region us-centrall; expected one such as us-central1",
        ),
        (
            "places=[{region: us-central1, zones: [us-central1-x]}]",
            "us-central1 has no zone us-central1-x; it has us-central1-a",
        ),
    ],
)
def test_unknown_things_are_named(open_fleet: OpenFleet, override: str, words: str) -> None:
    with pytest.raises(FleetError) as caught:
        open_fleet(override).pools()
    assert words in str(caught.value)
