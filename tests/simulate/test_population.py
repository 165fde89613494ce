"""Populations of hosts: what is drawn has the means that its settings name, and traces are what they were."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.places import ROOT
from vcdl.errors import JobError
from vcdl.job import load_job
from vcdl.journal.observer import RunObserver
from vcdl.run.folder import RunFolder
from vcdl.simulate.client_fleet import ClientFleet, load_clients, save_clients
from vcdl.simulate.clients import Clients
from vcdl.simulate.population import BUILT_IN, HostGroup, Population, read_trace
from vcdl.simulate.presence import NEVER, Presence, absences_in, absences_of
from vcdl.simulate.simulation import simulate_times
from vcdl.wire.workunit import WorkunitName

HOUR_S, DAY_S = 3600.0, 86400.0


def presence(group: HostGroup, host: int = 0, zone_h: float = 0.0) -> Presence:
    return Presence(absences_of(group, zone_h, lambda cause: np.random.default_rng([7, host, cause])))


def part_on(group: HostGroup, hosts: int = 60, days: int = 28, zone_h: float = 0.0) -> list[float]:
    """The mean fraction of hosts that are on in each hour of a week."""
    drawn = [presence(group, host, zone_h) for host in range(hosts)]
    on = [[one.here_from(hour * HOUR_S + 1800) == hour * HOUR_S + 1800 for one in drawn] for hour in range(24 * days)]
    return [float(np.mean([np.mean(on[hour]) for hour in range(first, len(on), 168)])) for first in range(168)]


def test_sessions_have_the_mean_lengths_that_the_group_names() -> None:
    on = part_on(HostGroup(on_h=12, on_shape=0.6, off_h=8))
    assert np.mean(on) == pytest.approx(12 / 20, abs=0.04)
    assert np.mean(on[:24]) == pytest.approx(12 / 20, abs=0.1), "time 0 is as every other moment"


def test_hosts_are_on_in_the_hours_of_their_zone_and_all_day_at_weekends() -> None:
    lab = part_on(HostGroup(hours=(20, 8), weekend=True), hosts=10, zone_h=1.0)
    assert [lab[12], lab[24 + 12]] == [0, 0], "noon on Monday and Tuesday"
    assert [lab[24 + 2], lab[24 + 22]] == [1, 1]
    assert min(lab[5 * 24 : 7 * 24 - 2]) == 1, "Saturday and Sunday, in the zone"
    day = part_on(HostGroup(hours=(8, 22)), hosts=10, zone_h=-6.0)
    assert [day[18], day[6 + 2]] == [1, 0], "12 and 2 o'clock there"


def test_a_host_that_leaves_for_good_loses_its_work_and_others_do_not() -> None:
    group = HostGroup(stays_days=10, stays_shape=0.58, off_h=1)
    lost = [presence(group, host).next_absence(0.0) for host in range(400)]
    assert all(absence.loses_work for absence in lost)
    ten_days = sum(absence.begin_s < 10 * DAY_S for absence in lost) / 400
    assert 0.3 < ten_days < 0.5, "those met at a moment are the ones that stay long"
    assert not presence(HostGroup(on_h=1, off_h=1)).next_absence(5 * HOUR_S).loses_work


def test_the_named_populations_are_on_as_documented() -> None:
    boinc = Clients(ClientFleet(clients=400, population="boinc"))  # type: ignore[arg-type]
    assert np.mean(boinc.hosts_by_hour(7 * DAY_S)) == pytest.approx(0.69, abs=0.04)
    assert np.mean(boinc.speeds) == pytest.approx(1)
    assert boinc.have_links
    spot = Clients(ClientFleet(clients=200, population="spot"))  # type: ignore[arg-type]
    assert np.mean(spot.hosts_by_hour(7 * DAY_S)) == pytest.approx(2.2 / 3.6, abs=0.05)
    assert not spot.have_links
    for name in BUILT_IN:
        assert f"`{name}`" in (ROOT / "docs/simulate.md").read_text()


def test_traces_of_the_three_known_forms_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 1, 0, 2]}))
    (tmp_path / "b.csv").write_text("0,1\n0,2\n60000,1\n120000,4\n")
    (tmp_path / "c.txt").write_text("2021-12-11, 11:11:30, 50\n2021-12-11, 11:13:10, 100\n2021-12-11, 12:13:10, 0\n")
    assert read_trace(tmp_path / "a.json") == [(0, 0.5), (1200, 0), (1800, 1), (1801, 1)]
    assert read_trace(tmp_path / "b.csv") == [(0, 0.5), (60, 0.25), (120, 1), (121, 1)]
    assert read_trace(tmp_path / "c.txt") == [(0, 0.5), (100, 1), (3700, 0), (3701, 0)]


@pytest.mark.parametrize("text", ["", "a,b", '{"metadata": {}}', "5,0\n6,0", "60000,1\n0,2", "{", "nan,1\n0,1"])
def test_another_file_is_refused_with_the_known_forms(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=r"is no trace of hosts .* known are"):
        read_trace(tmp_path / "x.csv")


@pytest.mark.parametrize("name", ["boink", "/"])
def test_a_name_that_is_neither_known_nor_a_file_is_refused(name: str) -> None:
    with pytest.raises(JobError, match=rf'expected boinc, spot, lab, or a file, got "{name}"'):
        load_clients(None, (f"population={name}",))


def test_a_host_follows_its_part_of_a_trace_which_repeats() -> None:
    trace = [(0.0, 1.0), (100.0, 0.25), (200.0, 1.0), (300.0, 1.0)]
    first, last = (Presence(absences_in(trace, part)) for part in (0.1, 0.9))
    assert first.next_absence(0.0) == NEVER
    assert [last.here_from(at_s) for at_s in (50.0, 150.0, 250.0, 450.0)] == [50.0, 200.0, 250.0, 500.0]
    assert last.next_absence(0.0).loses_work


def test_a_population_of_a_file_stands_in_the_frozen_clients(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("groups:\n- {share: 2, on_h: 5, zones: [-5, 1]}\n- {hours: [20, 8]}\n")
    (tmp_path / "clients.yaml").write_text("clients: 3\npopulation: mine.yaml\n")
    fleet = load_clients(tmp_path / "clients.yaml")
    assert isinstance(fleet.population, Population)
    assert fleet.population.groups[0].zones == (-5, 1)
    (tmp_path / "mine.yaml").unlink()
    (tmp_path / "run").mkdir()
    save_clients(fleet, RunFolder(tmp_path / "run"))
    assert load_clients(RunFolder(tmp_path / "run").clients_file) == fleet


@pytest.mark.parametrize(
    ("group", "word"),
    [("{on_h: -1}", "on_h"), ("{hours: [8, 30]}", "hours"), ("{zones: [40]}", "zones"), ("{of: 1}", "of")],
)
def test_a_wrong_group_is_refused_by_its_key(tmp_path: Path, group: str, word: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"groups:\n- {group}\n")
    with pytest.raises(JobError, match=rf"mine\.yaml:2: groups > 0 > {word}|groups.*{word}"):
        load_clients(None, (f"population={tmp_path / 'mine.yaml'}",))


def test_the_same_settings_give_the_same_outcomes_whatever_is_asked_first() -> None:
    fleet = ClientFleet(clients=20, population="boinc", timeout_s=1e6)  # type: ignore[arg-type]
    name = WorkunitName("j", 1, 0, 0, 0)
    forwards, backwards = Clients(fleet), Clients(fleet)
    expected = [forwards.outcome(client, name, 1000.0) for client in range(20)]
    assert [backwards.outcome(client, name, 1000.0) for client in reversed(range(20))] == expected[::-1]
    assert all(math.isfinite(outcome.heard_of_s) for outcome in expected)


def test_a_job_that_grows_is_not_held_back_by_hosts_that_are_away(tmp_path: Path) -> None:
    """It was: with three of ten away, a first tenth of the job took four times as long as all of it."""
    took_s = {}
    for grows_over in (0.0, 0.1):
        job = load_job(
            ROOT / "examples" / "digits.yaml",
            ("data.shards=60", "stop.epochs=5", "trust=own", f"pacing.grows_over={grows_over}"),
            60,
        )
        fleet = ClientFleet(clients=60, slots=1, subtask_s=5800.0, timeout_s=86400.0, population="boinc")  # type: ignore[arg-type]
        report = simulate_times(RunFolder(tmp_path / str(grows_over)), job, fleet, RunObserver())
        assert report is not None
        took_s[grows_over] = report.wall_s
    assert took_s[0.1] < 1.5 * took_s[0.0]
