"""The stage that a measurement names, and how it is shown."""

from benchmarks.boinc_load.backlogs import Backlogs
from benchmarks.boinc_load.load_result import Share, full_stage
from benchmarks.boinc_load.processes import BENCH

SHARES = {"web server": Share(30, 0.6, 100), BENCH: Share(5, 0.1, 600)}


def backlogs(**counts: int) -> Backlogs:
    made = Backlogs()
    for name in made.counts:
        made.counts[name] = [counts.get(name, 0)] * 6
    return made


def named(waiting: Backlogs, without_work: float = 0.0, machine: float = 0.5) -> str:
    return full_stage(waiting, 10.0, without_work, machine, 2, SHARES)


def test_the_stage_with_the_longest_queue_is_named() -> None:
    assert named(backlogs(validator=500, assimilator=20)) == "validator: 500 wait there, 50 s each"
    assert named(backlogs(validator=50)).startswith("none")


def test_hosts_without_work_point_to_the_supply() -> None:
    assert named(backlogs(unsent=3), without_work=0.5).startswith("the work generator")
    assert named(backlogs(unsent=300), without_work=0.5).startswith("the feeder")
    assert named(backlogs(unsent=300), without_work=0.05).startswith("none")


def test_a_machine_without_a_free_processor_is_named_first() -> None:
    words = named(backlogs(validator=500), without_work=0.5, machine=0.99)
    assert (
        words
        == f"the processors (cores in use: web server 0.60, {BENCH} 0.10; by other programs of this machine: 1.28)"
    )


def test_growth_is_the_last_third_less_the_first() -> None:
    growing = Backlogs()
    growing.counts["validator"] = [0, 2, 5, 9, 10, 12]
    assert growing.growth("validator") == 10
    assert Backlogs().growth("validator") == Backlogs().mean("validator") == 0
