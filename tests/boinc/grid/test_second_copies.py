import time

import pytest

from tests.boinc.grid.world import World
from tests.boinc.standin.states import Outcome, Server
from vcdl.boinc.grid.host_care import BANNED, HostCare
from vcdl.boinc.grid.second_copies import SecondCopies
from vcdl.boinc.grid.suspension import Suspension, Suspensions

pytestmark = pytest.mark.boinc

QUICK, GONE, SLOW = 1, 2, 3


@pytest.fixture
def out(world: World) -> str:
    """A workunit that a host has had for ten minutes; a quick and a slow host are at work."""
    *brought, late = world.created(11)
    for number, name in enumerate(brought):
        world.report(name)
        host, took_s = (SLOW, 700) if number == 0 else (QUICK, 20)
        row = world.result_of(name)
        world.update("result", row["id"], hostid=world.host(host), sent_time=row["received_time"] - took_s)
    sent(world, late, GONE, 600)
    return late


def sent(world: World, name: str, host: int, ago_s: int) -> None:
    world.send(name, host)
    row = world.result_of(name)
    world.update("result", row["id"], sent_time=row["sent_time"] - ago_s, create_time=row["sent_time"] - ago_s)
    world.update("workunit", row["workunitid"], transition_time=row["report_deadline"])


def look(world: World, queue_empty: bool = True, job: str = "mnist") -> None:
    SecondCopies(world.database, job).replicate_late(queue_empty=queue_empty)


def assigned(world: World) -> list[tuple[int, str]]:
    rows = world.rows("SELECT a.target_id, w.name FROM assignment a JOIN workunit w ON w.id = a.workunitid ORDER BY 1")
    return [(row["target_id"], row["name"]) for row in rows]


def taken(world: World, name: str, host: int) -> None:
    """The scheduler follows an assignment."""
    world.update("workunit", world.row(name)["id"], transition_time=int(time.time()))
    world.transition()
    world.send(name, host)


def test_a_late_subtask_is_offered_once_to_the_hosts_that_would_be_through_by_now(world: World, out: str) -> None:
    look(world, queue_empty=False)  # one of ten took 700 s
    assert assigned(world) == []
    for _ in range(2):
        look(world)
        assert assigned(world) == [(QUICK, out)]
        assert world.row(out)["target_nresults"] == 2


def test_a_banned_host_s_subtask_is_offered_at_once(world: World, out: str) -> None:
    world.update("result", world.result_of(out)["id"], sent_time=int(time.time()) - 1)
    world.update("host", world.host(GONE), max_results_day=BANNED)
    look(world)
    assert assigned(world) == [(QUICK, out), (SLOW, out)]


def test_an_offer_that_was_taken_is_withdrawn_and_the_workunit_wants_one_result_again(world: World, out: str) -> None:
    look(world)
    taken(world, out, QUICK)
    look(world)
    assert assigned(world) == []
    assert world.row(out)["target_nresults"] == 1
    world.transition()
    assert len(world.rows("SELECT id FROM result WHERE workunitid = %s", world.row(out)["id"])) == 2


def test_the_first_of_two_uploads_is_the_canonical_one_and_both_are_valid(world: World, out: str) -> None:
    look(world)
    taken(world, out, QUICK)
    first, second = world.rows("SELECT * FROM result WHERE workunitid = %s ORDER BY id", world.row(out)["id"])
    for result in (second, first):
        world.update(
            "result", result["id"], server_state=int(Server.OVER), outcome=int(Outcome.SUCCESS),
            received_time=int(time.time()),
        )  # fmt: skip
        world.update("workunit", result["workunitid"], transition_time=int(time.time()))
        world.transition()
    assert world.row(out)["canonical_resultid"] == second["id"]
    assert {world.rows("SELECT validate_state FROM result WHERE id = %s", one["id"])[0]["validate_state"]
            for one in (first, second)} == {1}  # fmt: skip
    look(world)
    assert assigned(world) == []


def test_offers_of_a_job_that_ended_are_withdrawn(world: World, out: str) -> None:
    look(world)
    SecondCopies(world.database, "mnis").clear()
    assert assigned(world) == [(QUICK, out)]
    SecondCopies(world.database, "mnist").clear()
    assert assigned(world) == []


def rests(world: World, host: int) -> None:
    world.standin.insert("app_version", appid=world.app_id)
    rest = Suspension(time.time() + 600, "its last tasks failed")
    HostCare(world.project, world.database).hold(Suspensions({host: rest}), time.time())


def test_a_host_that_rests_is_not_asked(world: World, out: str) -> None:
    rests(world, QUICK)
    world.update("host", world.host(SLOW), rpc_time=0)
    look(world)
    assert assigned(world) == []


def test_a_host_that_rests_is_not_waited_for(world: World) -> None:
    """A workunit that only such hosts had not had waited until the job ended."""
    (name,) = world.created()
    world.fail(name)
    for result in world.rows("SELECT id FROM result"):
        world.update("result", result["id"], create_time=int(time.time()) - 31, received_time=int(time.time()) - 31)
    rests(world, world.host(SLOW))
    look(world)
    assert world.row(name)["error_mask"] != 0


def test_a_workunit_that_every_host_has_had_is_given_up(world: World) -> None:
    (name,) = world.created()
    world.fail(name)  # on the only host; BOINC makes another result, which that host may not have
    look(world)
    assert world.row(name)["error_mask"] == 0  # one may still come
    for result in world.rows("SELECT id FROM result"):
        world.update("result", result["id"], create_time=int(time.time()) - 31, received_time=int(time.time()) - 31)
    other = world.host(SLOW)
    look(world)
    assert world.row(name)["error_mask"] == 0  # that one may have it
    world.update("host", other, rpc_time=0)
    look(world)
    world.transition()
    (outcome,) = world.claimed()
    assert "it could not be sent to any client" in str(outcome)
