"""A project's own hosts as a population: from BOINC's table to a simulation."""

import math
import time
from pathlib import Path

import numpy as np
import pytest

from tests.boinc.grid.world import World
from vcdl.boinc.grid.host_report import MeasuredHost
from vcdl.commands.hosts import export
from vcdl.errors import ExitCode, GridError
from vcdl.simulate.client_fleet import load_clients
from vcdl.simulate.clients import Clients
from vcdl.simulate.measured_population import population_of

DAY_S = 86400
NOW_S = 1_800_000_000


def host(number: int, **other: float) -> dict[str, object]:
    """A row of BOINC's table: host number of 40, the later the better available."""
    return {
        "create_time": int(time.time()) - 200 * DAY_S, "userid": 1, "rpc_seqno": 9, "rpc_time": int(time.time()) - 60,
        "timezone": 3600 * (number % 3), "nsame_ip_addr": 0, "p_ncpus": 4, "nresults_today": 0, "max_results_day": 0,
        "on_frac": 0.4 + 0.6 * number / 40, "active_frac": 0.9, "p_fpops": 4e9 * (1 + number % 2), "n_bwup": 1.2e6,
        "n_bwdown": 8e6, "domain_name": f"secret-{number}", "host_cpid": f"cpid{number}", **other,
    }  # fmt: skip


def add_hosts(world: World, rows: list[dict[str, object]]) -> None:
    for row in rows:
        world.standin.insert("host", **row)


@pytest.mark.boinc
def test_a_project_s_hosts_become_groups_without_names_that_can_be_simulated(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ours.yaml"
    add_hosts(world, [host(number) for number in range(40)])
    add_hosts(world, [host(1, max_results_day=-1), host(2, userid=0), host(3, p_fpops=0)])
    assert export(file, world.project.path) is ExitCode.OK
    assert capsys.readouterr().out.endswith("40 hosts in 5 groups; each of their 160 cores counts as a host\n")
    assert not [word for word in ("secret", "cpid", "host-") if word in file.read_text()]
    fleet = load_clients(None, (f"population={file}", "clients=400"))
    assert fleet.population is not None
    assert [group.share for group in fleet.population.groups] == [32] * 5
    on = np.mean(Clients(fleet).hosts_by_hour(14 * DAY_S))
    assert on == pytest.approx(0.9 * 0.69, abs=0.03), "the mean of what the table says"
    assert {group.down_mb_per_s for group in fleet.population.groups} == {8.0}


@pytest.mark.boinc
def test_too_few_hosts_are_no_population(world: World, tmp_path: Path) -> None:
    add_hosts(world, [host(number) for number in range(12)])
    with pytest.raises(GridError, match=r"12 hosts .* 15 are needed"):
        export(tmp_path / "ours.yaml", world.project.path)
    assert not (tmp_path / "ours.yaml").exists()


def measured(number: int, **other: float) -> MeasuredHost:
    values = {
        "available": 0.8, "flops": 4e9, "cores": 4, "up_bytes_per_s": 0, "down_bytes_per_s": 0, "zone_s": 0,
        "created_s": NOW_S - 100 * DAY_S, "heard_of_s": NOW_S - number, **other,
    }  # fmt: skip
    return MeasuredHost(**values)  # type: ignore[arg-type]


def test_one_host_that_lies_moves_no_group() -> None:
    honest = [measured(number) for number in range(40)]
    liar = measured(7, flops=1e300, cores=2**31, available=1e9, up_bytes_per_s=1e300, zone_s=10**9, created_s=0)
    groups, moved = (population_of(hosts, NOW_S)["groups"] for hosts in (honest, [*honest[:-1], liar]))
    for before, after in zip(groups, moved, strict=True):
        assert {**before, **after, "share": 0, "zones": 0, "up_mb_per_s": 0} == {
            **before, "share": 0, "zones": 0, "up_mb_per_s": 0, "on_h": after["on_h"], "off_h": after["off_h"]
        }  # fmt: skip
        assert after["on_h"] == pytest.approx(before["on_h"], rel=0.05)
        assert after["share"] <= 3 * before["share"]
        assert max(after["zones"]) <= 14


def test_stays_are_those_of_the_hosts_that_left_and_of_those_that_are_there() -> None:
    """Weibull stays of 192 days and shape 0.58 (Heien et al.), hosts that came over four years."""
    dice = np.random.default_rng(1)
    stays = 192 / math.gamma(1 + 1 / 0.58) * dice.weibull(0.58, 3000) * DAY_S
    came = NOW_S - dice.uniform(0, 4 * 365 * DAY_S, 3000)
    hosts = [
        measured(0, created_s=int(begin), heard_of_s=int(min(NOW_S, begin + stay)))
        for begin, stay in zip(came, stays, strict=True)
    ]
    (group, *_) = population_of(hosts, NOW_S)["groups"]
    assert group["stays_days"] == pytest.approx(192, rel=0.15)
    assert group["stays_shape"] == pytest.approx(0.58, abs=0.06)
    assert "stays_days" not in population_of([measured(number) for number in range(20)], NOW_S)["groups"][0]
