import math

import pytest

from vcdl.loop.lateness import Lateness, Out, Turnarounds, faster_hosts

USUAL = Lateness(tail_s=40.0, median_s=25.0)


def out(name: str, age_s: float, *hosts: str) -> Out:
    return Out(name, age_s, frozenset(hosts))


def test_nothing_is_late_before_enough_is_known() -> None:
    assert Lateness.of([20.0] * 7) is None
    assert Lateness.of([20.0] * 8) == Lateness(20.0, 20.0)


def test_the_tail_is_the_95th_percentile_and_one_odd_result_in_twenty_is_no_measure() -> None:
    assert Lateness.of([*map(float, range(1, 20)), 3600.0]) == Lateness(19.0, 10.5)


@pytest.mark.parametrize(("queue_empty", "names"), [(False, ["b"]), (True, ["b", "c", "a"])])
def test_what_is_out_longest_is_late_first_and_sooner_when_nothing_else_waits(
    queue_empty: bool, names: list[str]
) -> None:
    some = [out("a", 38.0), out("b", 90.0), out("c", 59.0), out("d", 20.0)]
    assert [one.workunit for one in USUAL.late(some, queue_empty=queue_empty)] == names


def test_a_stall_of_all_hosts_does_not_double_the_work() -> None:
    stalled = [out(f"w{number:02}", 1000.0) for number in range(40)]
    assert len(USUAL.late(stalled, queue_empty=False)) == 4


def test_quick_subtasks_are_not_late_while_a_server_and_a_client_talk() -> None:
    assert Lateness(1.0, 0.5).late([out("a", 19.0)], queue_empty=True) == []


def test_a_job_may_call_subtasks_late_later_or_never() -> None:
    some = [out("a", 59.0), out("b", 81.0), out("c", 1e6)]
    for late_after, names in ((1.0, ["c", "b", "a"]), (2.0, ["c", "b"]), (math.inf, [])):
        turnarounds = Turnarounds(late_after, [("host", 40.0)] * 10)
        assert turnarounds.lateness is not None
        assert [one.workunit for one in turnarounds.lateness.late(some, queue_empty=True)] == names


def test_usual_turnarounds_are_means_by_host_of_the_last_ones() -> None:
    turnarounds = Turnarounds(known=[("a", 10.0), ("b", 1.0)])
    turnarounds.add("a", 20.0)
    assert turnarounds.usual_s(["a", "b", "new"]) == {"a": 15.0, "b": 1.0, "new": None}
    for _ in range(200):
        turnarounds.add("b", 3.0)
    assert turnarounds.usual_s(["a", "b"]) == {"a": None, "b": 3.0}


def test_a_deadline_follows_within_the_bounds() -> None:
    assert USUAL.deadline_s(60.0, 3600.0) == 120.0
    assert USUAL.deadline_s(300.0, 3600.0) == 300.0
    assert USUAL.deadline_s(60.0, 100.0) == 100.0


def test_hosts_that_would_be_through_by_now_are_asked_and_never_one_that_had_it() -> None:
    usual_s = {"slow": 300.0, "quick": 20.0, "quicker": 10.0, "new": None, "gone": 5.0}
    assert faster_hosts(out("a", 60.0, "gone"), usual_s) == ["quick", "quicker"]
    assert faster_hosts(out("a", 4.0, "gone"), usual_s) == ["new"]
    assert faster_hosts(out("a", math.inf, "gone", "new"), usual_s) == ["quick", "quicker", "slow"]
    assert faster_hosts(out("a", 60.0, *usual_s), usual_s) == []
