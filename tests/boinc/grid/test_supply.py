import pytest

from vcdl.boinc.grid.supply import Demand, JobStock, Marks, Stock, marks, target_open_workunits


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
    assert target_open_workunits("a", {"a": JobStock(1, Stock(unsent, running))}, Marks(4, 6)) == wanted


def test_superseded_workunits_that_only_boinc_counts_never_make_the_stock_grow_without_end() -> None:
    running, superseded, unsent = 10, 3, 0
    for _ in range(100):
        known = running - superseded + unsent
        unsent += max(0, target_open_workunits("a", {"a": JobStock(1, Stock(unsent, running))}, Marks(4, 6)) - known)
    assert unsent <= 6 + superseded


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (JobStock(1, Stock(0, 4)), JobStock(3, Stock(1, 4)), 4),  # more than its quarter of 12: it is not its turn
        (JobStock(1, Stock(0, 2)), JobStock(3, Stock(1, 6)), 4),  # a quarter of 14
        (JobStock(3, Stock(0, 4)), JobStock(1, Stock(1, 4)), 11),
        (JobStock(3, Stock(0, 4)), JobStock(1, Stock(4, 0)), 8),  # its part, whoever's work lies ready
        (JobStock(1, Stock(0, 0)), JobStock(100, Stock(2, 50)), 1),  # never nothing
    ],
)
def test_a_job_makes_work_up_to_its_part_of_what_is_open(a: JobStock, b: JobStock, wanted: int) -> None:
    assert target_open_workunits("a", {"a": a, "b": b}, Marks(4, 6)) == wanted


@pytest.mark.parametrize(("unsent_of_b", "wanted"), [(0, 8 + 2), (1, 8 + 1), (2, 8)])
def test_a_job_that_has_its_part_makes_work_when_the_others_make_none(unsent_of_b: int, wanted: int) -> None:
    jobs = {"a": JobStock(1, Stock(0, 8)), "b": JobStock(1, Stock(unsent_of_b, 0))}
    assert target_open_workunits("a", jobs, Marks(4, 6)) == 8
    assert target_open_workunits("a", jobs, Marks(4, 6), others_pass=True) == wanted


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize(("slots", "whole", "least"), [(4, Marks(2, 3), 2.0), (40, Marks(10, 15), 2.7)])
def test_clients_are_shared_as_far_as_whole_tasks_allow(order: str, slots: int, whole: Marks, least: float) -> None:
    """A fleet that takes what was made first, each task as long as any other."""
    shares, unsent = {"a": 1, "b": 3}, list[str]()
    running, done = list[str](), {"a": 0, "b": 0}
    for look in range(4000):
        for job in order:
            jobs = {it: JobStock(shares[it], Stock(unsent.count(it), running.count(it))) for it in "ab"}
            mine = jobs[job].open
            unsent += job * max(0, target_open_workunits(job, jobs, whole) - mine)
        while len(running) < slots and unsent:
            running.append(unsent.pop(0))
        assert len(running) == slots or look < 100, "no client goes away empty"
        done[running.pop(0)] += 1
    assert least <= done["b"] / done["a"] <= 3.3
