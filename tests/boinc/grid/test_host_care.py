import logging
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.boinc.grid.world import World
from tests.boinc.standin.signing import SigningKey
from tests.boinc.standin.states import Outcome
from vcdl.boinc.grid.grid import clear_job
from vcdl.boinc.grid.host_care import BANNED, USED_UP, HostCare, ban, ended_tasks, read_suspensions, write_suspensions
from vcdl.boinc.grid.results import mark_lost
from vcdl.boinc.grid.suspension import End, Ended, Suspension, Suspensions, suspension_after
from vcdl.errors import GridError

GOOD, ERROR, TIMEOUT, REFUSED = End.GOOD, End.ERROR, End.TIMEOUT, End.REFUSED


def ended(*ends: End) -> list[Ended]:
    return [Ended(1000.0 * number, end) for number, end in enumerate(ends, 1)]


@pytest.mark.parametrize(
    ("ends", "suspension_s"),
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
def test_a_host_rests_longer_with_each_failure_in_a_row(ends: list[End], suspension_s: float | None) -> None:
    suspension = suspension_after(reversed(ended(*ends)))
    assert (None if suspension is None else suspension.until_s - 1000.0 * len(ends)) == suspension_s


def after(suspensions: Suspensions, ended: dict[int, list[Ended]], there: set[int], now_s: float) -> Suspensions:
    return suspensions.after(ended, {}, there, now_s)


FAILING = ended(ERROR, ERROR, ERROR)


def test_most_hosts_never_rest_and_one_alone_does_not() -> None:
    assert after(Suspensions({}), {1: FAILING}, {1}, 3100.0) == Suspensions({}, forgiven_until_s=3100.0)
    assert set(after(Suspensions({}), {1: FAILING}, {1, 2}, 3100.0).of) == {1}
    assert after(Suspensions({}), {1: FAILING, 2: FAILING}, {1, 2, 3}, 3100.0).of == {}


def test_hosts_that_left_neither_spare_those_at_work_nor_keep_them_from_being_spared() -> None:
    left = dict.fromkeys(range(10, 20), FAILING)
    assert 1 in after(Suspensions({}), {1: FAILING, **left}, {1, 2}, 3100.0).of
    assert after(Suspensions({}), {1: FAILING, **left}, {1}, 3100.0).of == {}


def test_what_most_hosts_met_counts_for_none_of_them_later() -> None:
    spared = after(Suspensions({}), {1: FAILING, 2: FAILING}, {1, 2, 3}, 3100.0)
    assert after(spared, {1: FAILING, 2: FAILING}, set(range(20)), 3200.0).of == {}


def test_a_host_that_rests_is_not_let_in_for_being_the_first_to_ask_after_an_outage() -> None:
    suspended = after(Suspensions({}), {1: FAILING}, {1, 2}, 3100.0)
    assert after(suspended, {1: FAILING}, {1}, 3200.0) == suspended


def test_a_rest_outlasts_the_tasks_that_led_to_it_until_one_is_good() -> None:
    suspended = after(Suspensions({}), {1: FAILING}, {1, 2}, 3100.0)
    assert after(suspended, {}, {1, 2}, 3200.0) == suspended
    assert after(suspended, {1: [Ended(3600.0, GOOD)]}, {1, 2}, 3700.0).of == {}


def test_a_quarantine_outlasts_the_job_that_says_so_and_what_its_host_had_begun() -> None:
    held = Suspensions({}).after({}, {1: "in quarantine of the job a"}, {1}, 1000.0)
    assert held.of[1].until_s == 87400.0
    assert after(held, {1: [Ended(2000.0, GOOD)]}, {1}, 2100.0) == held
    assert after(held, {1: [Ended(2000.0, GOOD)], 2: FAILING}, {1, 2}, 3100.0).of.keys() == {1}, "2 is alone"
    assert after(held, {1: [Ended(87500.0, GOOD)]}, {1}, 87600.0).of == {}


def lost(*times_s: float) -> list[Ended]:
    return [Ended(time_s, End.LOST) for time_s in times_s]


def test_a_lost_upload_counts_only_where_others_came_through_in_the_same_minute() -> None:
    came = [Ended(1000.0, GOOD), Ended(1030.0, GOOD)]
    there = {1, 2, 3, 4}
    assert 1 in after(Suspensions({}), {1: lost(1010.0, 1020.0), 2: came}, there, 1100.0).of
    assert after(Suspensions({}), {1: lost(1010.0, 1020.0)}, there, 1100.0).of == {}, "nobody can tell"
    assert after(Suspensions({}), {1: lost(1210.0, 1220.0), 2: came}, there, 1300.0).of == {}, "the other came before"
    assert after(Suspensions({}), {1: lost(1010.0, 1020.0), 2: came, 3: lost(1015.0)}, there, 1100.0).of == {}
    two = {1: lost(1010.0, 1020.0), 2: came, 3: lost(1015.0), 4: came}
    assert set(after(Suspensions({}), two, there, 1100.0).of) == {1}


@pytest.fixture
def hosts(world: World) -> World:
    """Hosts 1 and 2, of which the first has failed three tasks."""
    version = world.standin.insert("app_version", appid=world.app_id)
    for host in (1, 2):
        world.host(host)
        world.standin.insert(
            "host_app_version", host_id=host, app_version_id=version, max_jobs_per_day=2000, n_jobs_today=9
        )
    for name in world.created(3):
        world.fail(name)
    return world


def quota(world: World, host: int) -> tuple[int, int]:
    (row,) = world.rows("SELECT * FROM host_app_version WHERE host_id = %s", host)
    return row["max_jobs_per_day"], row["n_jobs_today"]


def rests_of(world: World) -> Mapping[int, Suspension]:
    """The suspensions that follow from BOINC's tables, beside many hosts that are well."""
    return Suspensions({}).after(ended_tasks(world.project, world.database), {}, range(100), time.time()).of


def report_doubles_the_quota(world: World) -> None:
    """What BOINC's scheduler does before it sends more in the same answer (sched_result.cpp)."""
    world.standin.execute("UPDATE host_app_version SET max_jobs_per_day = 2 * max_jobs_per_day WHERE host_id = 1")


def pass_time(world: World, seconds: int) -> None:
    statement = "UPDATE result SET received_time = received_time - %s, sent_time = sent_time - %s WHERE hostid > 0"
    world.standin.execute(statement, seconds, seconds)
    kept = read_suspensions(world.project)
    earlier = {
        host: replace(suspension, until_s=suspension.until_s - seconds, since_s=suspension.since_s - seconds)
        for host, suspension in kept.of.items()
    }
    write_suspensions(world.project, replace(kept, of=earlier))


@pytest.mark.boinc
def test_a_host_that_fails_rests_then_has_one_task_and_the_others_work(
    hosts: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "vcdl.hosts"):
        care = HostCare(hosts.project, hosts.database)
        care.suspend_failing()
    assert "host-1 gets no work until" in caplog.text
    assert (quota(hosts, 1), quota(hosts, 2)) == ((1, USED_UP), (2000, 9))
    report_doubles_the_quota(hosts)
    assert quota(hosts, 1)[1] >= 2 * 256, "not one task for each that it still reports, on 256 processors"
    pass_time(hosts, 601)
    HostCare(hosts.project, hosts.database).suspend_failing()
    assert quota(hosts, 1) == (1, 0)
    hosts.standin.execute("UPDATE host_app_version SET n_jobs_today = 1 WHERE host_id = 1")  # it is sent one
    hosts.send("mnist_e0001_s000_a0_v000000", 1)
    HostCare(hosts.project, hosts.database).suspend_failing()
    assert quota(hosts, 1) == (1, USED_UP), "the report of its one task does not bring it the next one"
    hosts.report("mnist_e0001_s000_a0_v000000")
    row = hosts.result_of("mnist_e0001_s000_a0_v000000")
    hosts.update("result", row["id"], received_time=int(time.time()) + 1)
    HostCare(hosts.project, hosts.database).suspend_failing()
    assert quota(hosts, 1) == (1, 0), "its task was good: it has work again"


@pytest.mark.boinc
def test_what_the_server_or_a_person_took_back_is_no_failure(hosts: World) -> None:
    rows = hosts.rows("SELECT id FROM result WHERE outcome = %s", int(Outcome.CLIENT_ERROR))
    for row, status in zip(rows, (200, 202, 203), strict=True):
        hosts.update("result", row["id"], exit_status=status, report_deadline=int(time.time()) - 1)
    assert rests_of(hosts) == {}


@pytest.mark.boinc
def test_a_host_whose_clock_is_ahead_rests_as_it_gives_up_whatever_it_gets(hosts: World) -> None:
    for row in hosts.rows("SELECT id FROM result WHERE outcome = %s", int(Outcome.CLIENT_ERROR)):
        hosts.update("result", row["id"], exit_status=200, report_deadline=int(time.time()) + 600)
    assert rests_of(hosts)[1].why == (
        "its last 3 tasks: 3 given up as too late before their deadline (its clock is ahead)"
    )


@pytest.mark.boinc
def test_a_host_rests_in_an_app_version_that_it_never_had_and_after_its_job_was_stopped(hosts: World) -> None:
    HostCare(hosts.project, hosts.database).suspend_failing()
    clear_job(hosts.project, hosts.database, "mnist", forget_on_clients=False)  # as `vcdl stop`
    for row in hosts.rows("SELECT id FROM workunit"):
        hosts.update("workunit", row["id"], error_mask=16)
    hosts.standin.insert("app_version", appid=hosts.app_id, version_num=200)
    HostCare(hosts.project, hosts.database).suspend_failing()
    rows = hosts.rows("SELECT max_jobs_per_day, n_jobs_today FROM host_app_version WHERE host_id = 1")
    assert [tuple(row.values()) for row in rows] == [(1, USED_UP)] * 2
    assert set(read_suspensions(hosts.project).of) == {1}


def refused_without_a_file(world: World, host: int, first: int, count: int = 2) -> None:
    """So many tasks of a host, which reported success, and whose file is not in upload/."""
    for number in range(first, first + count):
        (name,) = world.created_at(number)
        world.report(name, content=None, host=host)
        row = world.result_of(name)
        mark_lost(world.database, row["name"])
        world.update("result", row["id"], validate_state=2)


@pytest.mark.boinc
def test_what_no_other_host_can_contradict_was_lost_by_the_server(world: World) -> None:
    refused_without_a_file(world, host=1, first=1)
    assert rests_of(world) == {}
    (name,) = world.created_at(9)
    world.report(name, host=2)
    assert "2 without their file" in rests_of(world)[1].why


@pytest.mark.boinc
def test_uploads_of_tasks_that_another_key_signed_are_the_server_s_loss(world: World) -> None:
    refused_without_a_file(world, host=1, first=1)
    (name,) = world.created_at(9)
    world.report(name, host=2)
    SigningKey.generate().publish(world.project.upload_public)
    assert rests_of(world) == {}


@pytest.mark.boinc
def test_a_result_that_differs_from_another_host_s_is_no_success_yet(hosts: World) -> None:
    hosts.report("mnist_e0001_s000_a0_v000000")
    row = hosts.result_of("mnist_e0001_s000_a0_v000000")
    hosts.update("result", row["id"], received_time=int(time.time()) + 1, validate_state=4)
    assert set(rests_of(hosts)) == {1}


@pytest.mark.boinc
def test_a_banned_host_is_marked_for_boinc_s_scheduler(hosts: World) -> None:
    ban(hosts.database, [2])
    states = "SELECT max_results_day FROM host ORDER BY id"
    assert [row["max_results_day"] for row in hosts.rows(states)] == [0, BANNED]
    ban(hosts.database, [2], banned=False)
    assert [row["max_results_day"] for row in hosts.rows(states)] == [0, 0]
    with pytest.raises(GridError, match="no host 3"):
        ban(hosts.database, [2, 3])
    assert [row["max_results_day"] for row in hosts.rows(states)] == [0, 0]
