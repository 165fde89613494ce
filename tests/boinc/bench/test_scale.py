"""The model of what many hosts need, by hand, and the table that docs/scale.md shows of it."""

from dataclasses import replace

import pytest

from benchmarks.boinc_load.scale import FLEETS, Costs, Fleet, need_of, table
from tests.places import ROOT

PLAIN = Costs(
    web_s=0.03, database_s=0.02, transitioner_s=0.001, validator_s=0.02, assimilator_s=0.005, work_generator_s=0.01,
    file_deleter_s=0.0, serial_commits=4, commit_s=0.001, client_overhead_s=20.0, row_bytes=5000.0, kept_days=7.0,
    log_bytes=3000.0,
)  # fmt: skip


def test_a_fleet_s_needs_follow_from_its_rate() -> None:
    need = need_of(Fleet(hosts=8_000, train_s=60.0, update_bytes=100_000), PLAIN)
    assert need.subtasks_per_s == 100
    assert need.web_cores == pytest.approx(100 * 0.03 / 0.6)
    assert need.database_cores == pytest.approx(100 * 0.02 / 0.6)
    assert need.transitioners == 1, "100 × (1 ms + 4 commits of 1 ms) = 0.5 of its time, below 0.6"
    assert need.validators == 4, "100 × (20 ms + 4 ms) = 2.4, over 0.6"
    assert need.feeder_slots == 400
    assert need.up_gbit_s == pytest.approx(0.08)
    assert need.database_gb == pytest.approx(100 * 86_400 * 7 * 5000 / 1e9)
    assert need.logs_gb_a_day == pytest.approx(25.92)


def test_slow_commits_need_more_daemons_before_the_processors_are_full() -> None:
    fleet = Fleet(hosts=8_000, train_s=60.0, update_bytes=100_000)
    slow, fast = (need_of(fleet, replace(PLAIN, commit_s=commit_s)) for commit_s in (0.01, 0.0))
    assert (slow.transitioners, fast.transitioners) == (7, 1)
    assert slow.cores == fast.cores


def test_larger_updates_cost_lines_and_the_work_on_them() -> None:
    costs = replace(PLAIN, validator_s_per_byte=1e-9, assimilator_s_per_byte=2e-9)
    small, large = (need_of(Fleet(8_000, 60.0, size), costs) for size in (100_000.0, 100_100_000.0))
    assert large.up_gbit_s / small.up_gbit_s == pytest.approx(1001)
    assert large.daemon_cores - small.daemon_cores == pytest.approx(100 * 0.3 / 0.6)
    assert large.download_mirrors == 14


def test_a_handful_of_hosts_needs_one_of_each() -> None:
    need = need_of(Fleet(hosts=10, train_s=60.0, update_bytes=100_000), PLAIN)
    assert (need.transitioners, need.validators, need.assimilators, need.download_mirrors) == (1, 1, 1, 1)
    assert need.feeder_slots == 100, "BOINC's default"


def test_the_page_shows_what_the_model_says() -> None:
    page = [" ".join(line.split()) for line in (ROOT / "docs" / "scale.md").read_text().splitlines()]
    for line in table(FLEETS):
        assert " ".join(line.split()) in page
