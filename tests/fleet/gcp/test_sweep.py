"""After a sweep nothing of a fleet on Compute Engine is left."""

import pytest

from tests.fleet.gcp.conftest import OpenFleet
from tests.fleet.gcp.fake_gce import FakeGce
from tests.fleet.gcp.test_launch import launch
from vcdl.fleet.gcp.provider import GcpProvider
from vcdl.fleet.provider import SweepPace

pytestmark = pytest.mark.server

OURS = {"vcdl-fleet": "night_1"}


def test_machines_and_disks_without_one_are_left_over_until_they_are_swept(fleet: GcpProvider, gce: FakeGce) -> None:
    assert fleet.look().lines() == ()
    (launched,) = launch(fleet, units=1).instances
    gce.compute.add_disk("us-central1-b", "stray", OURS)
    name = launched.id.split("/")[1]
    assert fleet.look().lines() == (f"instance {name} in us-central1-a", "disk stray in us-central1-b")
    assert fleet.sweep() == ()
    assert gce.compute.ids() == ()
    assert gce.compute.disks == {}
    gce.compute.add_disk("us-central1-b", "stray", OURS)
    assert fleet.sweep() == (), "a second one deletes what has the same name again"
    assert gce.compute.disks == {}


def test_a_disk_goes_with_its_machine(fleet: GcpProvider, gce: FakeGce) -> None:
    gce.compute.add_disk("us-central1-b", "boot", OURS, users=("zones/us-central1-b/instances/vcdl-1",))
    assert fleet.look().lines() == ()
    assert fleet.sweep() == ()
    assert "delete_disk" not in gce.calls


def test_a_sweep_without_rights_says_so_and_does_not_wait(fleet: GcpProvider, gce: FakeGce) -> None:
    launch(fleet)
    gce.fail_next("delete_instance", 403, "forbidden", times=5)
    *left, why = fleet.sweep()
    assert len(left) == 5
    assert "may not remove" in why


def test_a_zone_that_is_away_keeps_no_other_from_being_swept(open_fleet: OpenFleet, gce: FakeGce) -> None:
    places = "{region: us-central1, zones: [us-central1-a]}, {region: europe-west4, zones: [europe-west4-c]}"
    fleet = open_fleet("instances.types=[e2-standard-8]", f"places=[{places}]", pace=SweepPace(0.02, 0.3, 1))
    gce.compute.exhaust("europe-west4-c", "e2-standard-8", left=3)
    launch(fleet)
    gce.compute.unreachable_zones.add("us-central1-a")
    assert fleet.sweep() == ("Compute Engine: zone us-central1-a is unreachable",)
    assert {id.split("/")[0] for id in gce.compute.ids()} == {"us-central1-a"}
    gce.compute.unreachable_zones.clear()
    assert fleet.sweep() == ()
    assert gce.compute.ids() == ()
