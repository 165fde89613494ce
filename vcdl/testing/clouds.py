"""Test the contract of a cloud's provider."""

import random
from collections.abc import Callable
from uuid import UUID

import pytest

from vcdl.fleet.instance import Ending
from vcdl.fleet.provider import LaunchResult, Provider

OpenFleet = Callable[..., Provider]
"""`open_fleet(name)` returns a new provider of the fleet of that name, as another process would have it.

The fleet's settings must allow only types with 8 vCPUs.
"""
_USER_DATA = "#cloud-config\nhostname: trainer\n"


@pytest.mark.server
class CloudContract:
    """Tests of providers: a package's test class subclasses it and has the fixtures `open_fleet` and `settle`.

    `settle()` lets a cloud that acts with a delay carry out the requests so far.
    """

    def test_a_launch_has_the_units_that_were_asked_for_and_is_found(self, open_fleet: OpenFleet) -> None:
        launched = _launch(open_fleet("ours"), units=40)
        assert launched.problems == ()
        assert [instance.vcpus for instance in launched.instances] == [8] * 5
        assert _live(open_fleet("ours")) == {instance.id for instance in launched.instances}

    def test_a_token_launches_once_also_from_another_process(self, open_fleet: OpenFleet) -> None:
        # Two providers stand for two processes, because the cloud must know a used token, and not only an object here.
        first = _launch(open_fleet("ours"), units=16)
        again = _launch(open_fleet("ours"), units=16)
        assert {instance.id for instance in again.instances} == {instance.id for instance in first.instances}
        assert len(_launch(open_fleet("ours"), units=8, seed=2).instances) == 1, "another token is another launch"
        assert len(_live(open_fleet("ours"))) == 3

    def test_an_instance_is_of_a_pool_that_was_asked_for(self, open_fleet: OpenFleet) -> None:
        provider = open_fleet("ours")
        (*_, pool) = provider.pools()
        launched = provider.launch([pool], 16, _token(1), _USER_DATA)
        assert {instance.pool for instance in launched.instances} == {pool}

    def test_terminating_again_is_no_error_and_concerns_nothing_else(
        self, open_fleet: OpenFleet, settle: Callable[[], None]
    ) -> None:
        provider = open_fleet("ours")
        first, second = _launch(provider, units=16).instances
        provider.terminate([first.id])
        provider.terminate([first.id])
        settle()
        provider.terminate([first.id])
        # A lease on a missing instance is no error either, because fleets write leases for what they saw seconds ago.
        provider.lease([first.id], 1_000_000.0)
        assert _live(open_fleet("ours")) == {second.id}
        endings = {instance.id: instance.ending for instance in provider.find()}
        # A cloud may have forgotten the instance by now, which is correct as well.
        assert endings.get(first.id, Ending.OURS) is Ending.OURS

    def test_a_lease_is_written_and_renewed_in_whole_seconds(self, open_fleet: OpenFleet) -> None:
        first, second = _launch(open_fleet("ours"), units=16).instances
        open_fleet("ours").lease([first.id], 1_000_000.9)
        assert {instance.id: instance.until_s for instance in open_fleet("ours").find()} == {
            first.id: 1_000_000.0,
            second.id: None,
        }
        open_fleet("ours").lease([first.id, second.id], 2_000_000.0)
        assert [instance.until_s for instance in open_fleet("ours").find()] == [2_000_000.0] * 2

    def test_a_sweep_leaves_nothing_of_its_fleet_and_all_of_another(self, open_fleet: OpenFleet) -> None:
        ours, theirs = open_fleet("ours"), open_fleet("theirs")
        _launch(ours, units=16)
        _launch(theirs, units=8, seed=2)
        assert not _live(ours) & _live(theirs)
        before = theirs.look().lines()
        assert ours.sweep() == ()
        assert ours.look().lines() == ()
        assert theirs.look().lines() == before != ()
        assert len(_live(theirs)) == 1


def _token(seed: int) -> str:
    return str(UUID(int=random.Random(seed).getrandbits(128)))


def _launch(provider: Provider, units: int, seed: int = 1) -> LaunchResult:
    return provider.launch(list(provider.pools()), units, _token(seed), _USER_DATA)


def _live(provider: Provider) -> set[str]:
    return {instance.id for instance in provider.find() if instance.is_live}
