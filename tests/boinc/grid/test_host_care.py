import logging
import time

import pytest

from tests.boinc.grid.world import World
from tests.boinc.standin.schema import insert
from tests.boinc.standin.states import Outcome, Server
from vcdl.boinc.grid.host_care import BANNED, USED_UP, HostCare, ban, rests_of
from vcdl.boinc.grid.rest import End, Ended, Rest, rest_after, spared
from vcdl.errors import GridError

GOOD, ERROR, TIMEOUT, REFUSED = End.GOOD, End.ERROR, End.TIMEOUT, End.REFUSED


def ended(*ends: End) -> list[Ended]:
    return [Ended(1000.0 * number, end) for number, end in enumerate(ends, 1)]


@pytest.mark.parametrize(
    ("ends", "rest_s"),
    [
        ([], None),
        ([ERROR, ERROR], None),
        ([ERROR, ERROR, ERROR, GOOD], None),
        ([GOOD, ERROR, TIMEOUT, ERROR], 600),
        ([ERROR] * 5, 2400),
        ([ERROR] * 2000, 86400),
        ([REFUSED, GOOD, REFUSED], None),
        ([REFUSED, REFUSED], 3600),
        ([GOOD, REFUSED, ERROR, REFUSED, REFUSED], 7200),
    ],
)
def test_a_host_rests_longer_with_each_failure_in_a_row(ends: list[End], rest_s: float | None) -> None:
    rest = rest_after(reversed(ended(*ends)))
    assert (None if rest is None else rest.until_s - 1000.0 * len(ends)) == rest_s


def test_the_log_can_say_why() -> None:
    rest = rest_after(ended(GOOD, REFUSED, TIMEOUT, ERROR, ERROR))
    assert rest is not None
    assert rest.why == "its last 4 tasks: 1 refused, 2 failed, 1 not brought in time"


def test_most_hosts_never_rest_and_one_alone_does_not() -> None:
    rests = {1: Rest(100.0, ""), 2: Rest(10.0, "")}
    assert spared(rests, {1}, now_s=50.0)
    assert not spared(rests, {1, 2}, now_s=50.0)
    assert spared(rests, {1, 2, 3}, now_s=5.0)


def test_hosts_that_left_do_not_spare_those_at_work() -> None:
    left = {host: Rest(100.0, "") for host in range(10, 20)}
    assert not spared({1: Rest(100.0, ""), **left}, {1, 2}, now_s=50.0)


@pytest.fixture
def hosts(world: World) -> World:
    """Hosts 1 and 2, of which the first has failed three tasks."""
    connection = world.standin.connect()
    version = insert(connection, "app_version", appid=world.app_id)
    for host in (1, 2):
        world.host(host)
        cursor = connection.cursor()
        cursor.execute(
            "INSERT INTO host_app_version (host_id, app_version_id, max_jobs_per_day, n_jobs_today)"
            " VALUES (%s, %s, 2000, 9)",
            (host, version),
        )
    connection.commit()
    connection.close()
    for name in world.created(3):
        world.fail(name)
    return world


def quota(world: World, host: int) -> tuple[int, int]:
    (row,) = world.rows("SELECT * FROM host_app_version WHERE host_id = %s", host)
    return row["max_jobs_per_day"], row["n_jobs_today"]


def report_doubles_the_quota(world: World) -> None:
    """What BOINC's scheduler does before it sends more in the same answer (sched_result.cpp)."""
    connection = world.standin.connect()
    connection.cursor().execute("UPDATE host_app_version SET max_jobs_per_day = 2 * max_jobs_per_day WHERE host_id = 1")
    connection.commit()
    connection.close()


def pass_time(world: World, seconds: int) -> None:
    connection = world.standin.connect()
    statement = "UPDATE result SET received_time = received_time - %s, sent_time = sent_time - %s WHERE hostid > 0"
    connection.cursor().execute(statement, (seconds, seconds))
    connection.commit()
    connection.close()


def test_a_host_that_fails_rests_then_has_one_task_and_the_others_work(
    hosts: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "vcdl.hosts"):
        care = HostCare(hosts.database)
        care.look()
    assert "host-1 gets no work until" in caplog.text
    assert (quota(hosts, 1), quota(hosts, 2)) == ((1, USED_UP), (2000, 9))
    report_doubles_the_quota(hosts)
    assert quota(hosts, 1)[1] >= 2 * 256, "not one task for each that it still reports, on 256 processors"
    pass_time(hosts, 601)
    HostCare(hosts.database).look()
    assert quota(hosts, 1) == (1, 0)
    connection = hosts.standin.connect()
    connection.cursor().execute("UPDATE host_app_version SET n_jobs_today = 1 WHERE host_id = 1")  # it is sent one
    connection.commit()
    connection.close()
    hosts.send("mnist_e0001_s000_a0_v000000", 1)
    HostCare(hosts.database).look()
    assert quota(hosts, 1) == (1, USED_UP), "the report of its one task does not bring it the next one"
    hosts.report("mnist_e0001_s000_a0_v000000")
    row = hosts.result_of("mnist_e0001_s000_a0_v000000")
    hosts.update("result", row["id"], received_time=int(time.time()) + 1)
    HostCare(hosts.database).look()
    assert quota(hosts, 1) == (1, 0), "its task was good: it has work again"


def test_what_the_server_or_a_person_took_back_is_no_failure(hosts: World) -> None:
    rows = hosts.rows("SELECT id FROM result WHERE outcome = %s", int(Outcome.CLIENT_ERROR))
    for row, status in zip(rows, (200, 202, 203), strict=True):
        hosts.update("result", row["id"], exit_status=status, report_deadline=int(time.time()) - 1)
    assert rests_of(hosts.database) == {}


def test_a_host_whose_clock_is_ahead_rests_as_it_gives_up_whatever_it_gets(hosts: World) -> None:
    for row in hosts.rows("SELECT id FROM result WHERE outcome = %s", int(Outcome.CLIENT_ERROR)):
        hosts.update("result", row["id"], exit_status=200, report_deadline=int(time.time()) + 600)
    assert rests_of(hosts.database)[1].why == (
        "its last 3 tasks: 3 given up as too late before their deadline (its clock is ahead)"
    )


def test_cancelled_workunits_say_nothing_of_their_hosts(hosts: World) -> None:
    for row in hosts.rows("SELECT id FROM workunit"):
        hosts.update("workunit", row["id"], error_mask=16)
    assert rests_of(hosts.database) == {}


def test_uploads_that_were_refused_when_they_were_to_be_folded_in_are_no_success(hosts: World) -> None:
    names = [f"mnist_e000{number}_s000_a0_v000000" for number in (1, 2)]
    for name in names:
        hosts.report(name)
        hosts.update("result", hosts.result_of(name)["id"], received_time=int(time.time()) + 1)
    assert rests_of(hosts.database, names[:1]) == {}
    assert "2 refused" in rests_of(hosts.database, names)[1].why


def test_a_result_that_differs_from_another_host_s_is_no_success_yet(hosts: World) -> None:
    hosts.report("mnist_e0001_s000_a0_v000000")
    row = hosts.result_of("mnist_e0001_s000_a0_v000000")
    hosts.update("result", row["id"], received_time=int(time.time()) + 1, validate_state=4)
    assert set(rests_of(hosts.database)) == {1}


def test_a_success_ends_it(hosts: World) -> None:
    hosts.report("mnist_e0001_s000_a0_v000000")
    row = hosts.result_of("mnist_e0001_s000_a0_v000000")
    assert (row["server_state"], row["validate_state"]) == (Server.OVER, 1)
    hosts.update("result", row["id"], received_time=int(time.time()) + 1)
    assert rests_of(hosts.database) == {}


def test_a_banned_host_is_marked_for_boinc_s_scheduler(hosts: World) -> None:
    ban(hosts.database, [2])
    states = "SELECT max_results_day FROM host ORDER BY id"
    assert [row["max_results_day"] for row in hosts.rows(states)] == [0, BANNED]
    ban(hosts.database, [2], banned=False)
    assert [row["max_results_day"] for row in hosts.rows(states)] == [0, 0]
    with pytest.raises(GridError, match="no host 3"):
        ban(hosts.database, [2, 3])
    assert [row["max_results_day"] for row in hosts.rows(states)] == [0, 0]
