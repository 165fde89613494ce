"""How a fleet finds, drains and ends its machines on Compute Engine."""

import pytest

from tests.fleet.fake_cloud import Clock
from tests.fleet.gcp.conftest import OpenFleet
from tests.fleet.gcp.fake_gce import FakeGce
from tests.fleet.gcp.test_launch import launch
from vcdl.fleet.gcp.launch import metadata_items
from vcdl.fleet.gcp.provider import GcpProvider
from vcdl.fleet.instance import Ending, InstanceState

pytestmark = pytest.mark.server


def test_machines_on_all_pages_and_in_all_regions_are_found(open_fleet: OpenFleet) -> None:
    launch(open_fleet("capacity.max=200", "places=[{region: europe-west4}]"), units=160)
    launch(open_fleet(), units=80)
    # Also in a region that the fleet file no longer names.
    assert len(open_fleet().find()) == 30


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PROVISIONING", InstanceState.PENDING),
        ("STAGING", InstanceState.PENDING),
        ("RUNNING", InstanceState.RUNNING),
        ("STOPPING", InstanceState.STOPPING),
        ("PENDING_STOP", InstanceState.STOPPING),
        ("REPAIRING", InstanceState.STOPPED),
        ("SUSPENDED", InstanceState.STOPPED),
        ("TERMINATED", InstanceState.STOPPED),
    ],
)
def test_the_states_of_a_machine(fleet: GcpProvider, gce: FakeGce, status: str, state: InstanceState) -> None:
    (launched,) = launch(fleet, units=1).instances
    gce.compute.machines[launched.id]["status"] = status
    (found,) = fleet.find()
    assert found.state is state


def test_a_preempted_machine_is_gone_and_its_ending_known(fleet: GcpProvider, gce: FakeGce, clock: Clock) -> None:
    first, *others = launch(fleet).instances
    clock.sleep(5400.0)
    gce.compute.preempt(first.id)
    clock.sleep(30.0)
    found = {instance.id: instance for instance in fleet.find()}
    gone = found.pop(first.id)
    assert (gone.state, gone.ending, gone.ended_s) == (InstanceState.GONE, Ending.PREEMPTED, first.launched_s + 5400.0)
    assert gone.pool == first.pool
    assert list(found) == [instance.id for instance in others]


def test_a_machine_that_we_ended_is_told_from_a_preempted_one(fleet: GcpProvider, gce: FakeGce, clock: Clock) -> None:
    (launched,) = launch(fleet, units=1).instances
    clock.sleep(60.0)
    gce.compute.operation_s = 60.0
    fleet.terminate([launched.id])
    (found,) = fleet.find()
    assert (found.state, found.ending) == (InstanceState.STOPPING, Ending.OURS)
    gce.compute.settle()
    (found,) = fleet.find()
    assert (found.state, found.ending, found.ended_s) == (InstanceState.GONE, Ending.OURS, launched.launched_s + 60.0)


def test_a_machine_that_switched_itself_off_is_stopped(fleet: GcpProvider, gce: FakeGce, clock: Clock) -> None:
    (launched,) = launch(fleet, units=1).instances
    clock.sleep(600.0)
    gce.compute.stop(launched.id)
    (found,) = fleet.find()
    assert (found.state, found.ending, found.ended_s) == (
        InstanceState.STOPPED,
        Ending.UNKNOWN,
        launched.launched_s + 600.0,
    )
    fleet.terminate([launched.id])
    gce.compute.settle()
    assert gce.compute.ids() == ()


def test_a_region_with_an_unreachable_zone_is_away_and_its_machines_are_not_gone(
    fleet: GcpProvider, gce: FakeGce
) -> None:
    launch(fleet)
    gce.compute.unreachable_zones.add("us-central1-a")
    assert fleet.find() == ()
    assert dict(fleet.away) == {"us-central1": "Compute Engine: zone us-central1-a is unreachable"}
    assert fleet.pools() == {}
    assert fleet.look().lines() == ("Compute Engine: zone us-central1-a is unreachable",)
    gce.compute.unreachable_zones.clear()
    assert len(fleet.find()) == 5
    assert not fleet.away


def test_the_lease_is_in_the_machines_own_metadata(fleet: GcpProvider, gce: FakeGce) -> None:
    first, second = launch(fleet, units=16).instances
    fleet.lease([first.id], 1_000_060.5)
    assert {i.id: i.until_s for i in fleet.find()} == {first.id: 1_000_060.0, second.id: None}
    items = gce.compute.machines[first.id]["metadata"]["items"]
    assert items == [*metadata_items("#cloud-config\n"), {"key": "vcdl-until", "value": "1000060"}]


def test_a_lease_in_another_form_is_over(fleet: GcpProvider, gce: FakeGce) -> None:
    (launched,) = launch(fleet, units=1).instances
    gce.compute.machines[launched.id]["metadata"]["items"].append({"key": "vcdl-until", "value": "please"})
    assert [instance.until_s for instance in fleet.find()] == [0.0]


def test_a_mark_is_written_while_others_write_too(fleet: GcpProvider, gce: FakeGce) -> None:
    (launched,) = launch(fleet, units=1).instances
    gce.fail_next("set_metadata", 412, "conditionNotMet", times=2)
    fleet.lease([launched.id], 1_000_060.0)
    assert [instance.until_s for instance in fleet.find()] == [1_000_060.0]
