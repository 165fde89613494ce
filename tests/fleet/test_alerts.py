"""Alerts: each cause is told once, to a real command and a real webhook."""

import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fake_fleet import POOLS, FakeFleet
from tests.fleet.fleet_files import settings_of
from vcdl.errors import FleetUnavailable
from vcdl.fleet.alerts import current_alerts
from vcdl.fleet.instance import Instance, InstanceState
from vcdl.fleet.provider import LaunchResult
from vcdl.fleet.reconciler import Actions, Observation
from vcdl.fleet.run import ControlLoop
from vcdl.fleet.state import FleetGoal, FleetState

pytestmark = pytest.mark.process


def fleet_that_writes(folder: Path, *overrides: str) -> tuple[FakeFleet, Path]:
    """A fleet whose alerts are lines of a file."""
    told = folder / "told"
    told.write_text("")
    program = folder / "tell"
    program.write_text(f'#!/bin/sh\necho "$1" >>{told}\n')
    program.chmod(0o755)
    fleet = FakeFleet.begun(folder, f"alerts.command=[{program}]", *overrides)
    return fleet, told


def names(told: Path) -> list[str]:
    return [line.split(": ")[1] for line in told.read_text().splitlines()]


def test_each_share_of_the_budget_is_told_once_also_by_another_process(tmp_path: Path) -> None:
    fleet, told = fleet_that_writes(tmp_path, "budget_usd=2")
    for _ in range(60):
        fleet.another_process().reconcile_once()
        fleet.later(300)
    assert names(told) == ["budget 50%", "budget 80%", "budget 100%"]
    assert told.read_text().startswith("fleet cifar: budget 50%: 1.0")


def test_capacity_that_is_gone_is_told_again_after_it_came_back(tmp_path: Path) -> None:
    fleet, told = fleet_that_writes(tmp_path, "cooldown_s=60")
    for empty in (set(POOLS), set[Any](), set(POOLS)):
        fleet.cloud.empty = empty
        for instance in fleet.cloud.live:
            fleet.cloud.end(instance.id)
        for _ in range(5):
            fleet.controller.reconcile_once()
            fleet.later(30)
    assert names(told) == ["capacity", "capacity"]
    assert "40 of 40 vcpu missing" in told.read_text()


def test_leases_that_run_out_while_the_cloud_is_away_are_told(tmp_path: Path) -> None:
    fleet, told = fleet_that_writes(tmp_path)
    loop = ControlLoop(fleet.controller, 30, lambda line: None, threading.Event())
    loop.run_once()
    fleet.cloud.outage = FleetUnavailable("away")
    for _ in range(2):
        assert names(told) == []
        fleet.later(1800)
        loop.run_once()
    assert names(told) == ["lease"]
    loop.run_once()
    assert names(told) == ["lease"], "once"


def test_a_state_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    fleet, told = fleet_that_writes(tmp_path)
    fleet.folder.state_file.write_text("{")
    loop = ControlLoop(fleet.controller, 30, lambda line: None, threading.Event())
    for _ in range(3):
        loop.run_once()
    assert names(told) == ["state"]
    assert "delete it" in told.read_text()


def test_a_lease_that_nobody_renews_is_told_in_its_last_quarter(tmp_path: Path) -> None:
    settings, state = settings_of(tmp_path), FleetState(FleetGoal.UP)
    one = Instance("i-1", POOLS[0], 8, 0, InstanceState.RUNNING, 0.0, until_s=1000.0 + 1799.0)
    observed = Observation(1000.0, state, (one,), 8, 8)
    assert current_alerts(settings, observed, Actions(), LaunchResult(), math.inf) == {
        "lease": "an instance's lease is over in 29 min 59 s"
    }
    assert current_alerts(settings, observed, Actions(), LaunchResult(), 7000.0) == {}, (
        "the budget pays for no longer one"
    )
    drained = replace(observed, state=FleetState(FleetGoal.DRAINED))
    assert current_alerts(settings, drained, Actions(), LaunchResult(), math.inf) == {}
