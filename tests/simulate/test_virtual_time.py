"""A clock that moves from event to event."""

import math

from vcdl.simulate.virtual_time import VirtualTime


def test_events_happen_in_the_order_of_their_times_and_those_of_a_moment_in_the_order_of_their_announcement() -> None:
    time, happened = VirtualTime(), list[tuple[str, float]]()
    for name, time_s in (("late", 2.0), ("first", 1.0), ("second", 1.0)):
        time.at(time_s, lambda name=name: happened.append((name, time.now_s())))  # type: ignore[misc]
    assert time.advance(math.inf)
    assert happened == [("first", 1.0), ("second", 1.0)]
    assert time.advance(math.inf)
    assert happened[2:] == [("late", 2.0)]
    assert not time.advance(math.inf)
    assert time.now_s() == 2.0


def test_what_an_event_announces_for_now_or_earlier_happens_in_the_same_moment() -> None:
    time, happened = VirtualTime(), list[float]()
    time.at(3.0, lambda: time.at(1.0, lambda: happened.append(time.now_s())))
    time.advance(math.inf)
    assert happened == [3.0]


def test_the_clock_stops_at_the_limit_before_what_comes_later() -> None:
    time, happened = VirtualTime(), list[float]()
    time.at(5.0, lambda: happened.append(time.now_s()))
    assert time.advance(4.0)
    assert (time.now_s(), happened) == (4.0, [])
    assert time.advance(math.inf)
    assert happened == [5.0]
