import pytest

from vcdl.grids.boinc.supply import Demand, Marks, Stock, marks, open_wanted, share


@pytest.mark.parametrize(
    ("running", "idle_hosts", "task_s", "low", "high"),
    [
        (0, 0, None, 8, 12),  # a fleet may come all at once
        (0, 3, 600.0, 8, 12),
        (0, 20, 600.0, 20, 30),
        (1, 0, 600.0, 2, 3),
        (2, 0, None, 2, 3),
        (10, 0, None, 10, 15),  # all may end at once, for all that is known
        (6, 2, 600.0, 4, 6),
        (1000, 0, 600.0, 29, 44),  # 17 are fetched in ten seconds, and hardly ever more than 29
        (1000, 50, 600.0, 79, 119),
        (10, 0, 20.0, 12, 18),
        (10, 0, 5.0, 34, 51),  # each slot takes two before more can be made
        (10, 0, 0.0, 130, 195),
    ],
)
def test_the_marks_follow_the_clients(running: int, idle_hosts: int, task_s: float | None, low: int, high: int) -> None:
    assert marks(Demand(running, idle_hosts, task_s)) == Marks(low, high)


@pytest.mark.parametrize(
    ("priorities", "expected"),
    [
        ({"a": 1}, Marks(20, 30)),
        ({"a": 7}, Marks(20, 30)),
        ({"a": 1, "b": 1}, Marks(10, 15)),
        ({"a": 3, "b": 1}, Marks(15, 23)),
        ({"a": 1, "b": 3}, Marks(5, 8)),
        ({"a": 1, "b": 100, "c": 100}, Marks(1, 2)),  # never nothing
    ],
)
def test_open_jobs_share_by_priority(priorities: dict[str, int], expected: Marks) -> None:
    assert share(Marks(20, 30), "a", priorities) == expected


@pytest.mark.parametrize(
    ("unsent", "running", "wanted"),
    [
        (0, 0, 6),
        (3, 5, 5 + 6),  # below the low mark: filled up to the high one
        (4, 5, 5 + 4),  # enough: none is made
        (5, 5, 5 + 4),
        (9, 5, 5 + 4),
    ],
)
def test_it_is_filled_up_to_the_high_mark_once_it_falls_below_the_low_one(
    unsent: int, running: int, wanted: int
) -> None:
    assert open_wanted(Stock(unsent, running), Marks(4, 6)) == wanted


def test_superseded_workunits_that_only_boinc_counts_never_make_the_stock_grow_without_end() -> None:
    running, superseded, unsent = 10, 3, 0
    for _ in range(100):
        known = running - superseded + unsent
        unsent += max(0, open_wanted(Stock(unsent, running), Marks(4, 6)) - known)
    assert unsent <= 6 + superseded
