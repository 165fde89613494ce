"""The number of parameter servers follows the load, up at once and down slowly."""

from vcdl.local.server_scaling import ServerScaling


def test_it_begins_with_the_least() -> None:
    assert ServerScaling(least=1, most=4, drain_s=1.0).look(backlog=0, service_s=0.05) == 1


def test_a_backlog_that_one_server_cannot_drain_in_time_brings_more_at_once() -> None:
    scaling = ServerScaling(least=1, most=4, drain_s=1.0)
    assert scaling.look(backlog=60, service_s=0.05) == 3


def test_it_never_wants_more_than_the_most() -> None:
    assert ServerScaling(least=1, most=4, drain_s=1.0).look(backlog=10_000, service_s=1.0) == 4


def test_slow_updates_count_like_many() -> None:
    assert ServerScaling(least=1, most=9, drain_s=1.0).look(backlog=4, service_s=0.5) == 2


def test_one_quiet_look_ends_no_server_but_many_end_one_after_the_other() -> None:
    scaling = ServerScaling(least=1, most=4, drain_s=1.0)
    scaling.look(backlog=80, service_s=0.05)
    assert scaling.look(backlog=0, service_s=0.05) == 4
    wanted = [scaling.look(backlog=0, service_s=0.05) for _ in range(100)]
    assert wanted == sorted(wanted, reverse=True)
    assert {4, 3, 2, 1} == set(wanted)
    assert wanted[-1] == 1


def test_a_new_burst_while_it_shrinks_is_served_at_once() -> None:
    scaling = ServerScaling(least=1, most=4, drain_s=1.0)
    scaling.look(backlog=80, service_s=0.05)
    for _ in range(19):
        scaling.look(backlog=0, service_s=0.05)
    assert scaling.look(backlog=80, service_s=0.05) == 4
    assert scaling.look(backlog=0, service_s=0.05) == 4
