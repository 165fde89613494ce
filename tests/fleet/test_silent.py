"""Machines on which the agent never starts: they are paid for, and nobody would hear of it."""

from pathlib import Path

import pytest

from tests.fleet.fake_fleet import FakeFleet
from tests.fleet.test_alerts import fleet_that_writes, names
from tests.fleet.test_runaway import Day
from vcdl.fleet.controller import Controller
from vcdl.fleet.instance import Ending
from vcdl.fleet.ledger import Ledger
from vcdl.fleet.refusal import CloudUnavailable

pytestmark = pytest.mark.process

BOOTED = "[    0.000000] Linux version 6.8.0\nDebian GNU/Linux 12 vcdl-agent ttyS0\nvcdl-agent login: \n"
"""The console of a machine without cloud-init whose name has our words in it."""


@pytest.fixture
def fleet(tmp_path: Path) -> tuple[FakeFleet, Path]:
    fleet, told = fleet_that_writes(tmp_path, "capacity.target=80")
    fleet.cloud.said = BOOTED
    return fleet, told


def test_machines_that_nobody_hears_of_are_ended_told_and_no_longer_launched_by_tens(
    fleet: tuple[FakeFleet, Path],
) -> None:
    made, told = fleet
    day = Day(made)  # no machine ends by itself, as none has an agent
    day.live(8)
    assert day.spent_usd < 0.2 * 10 * 8 * 0.107, "ten machines for 8 h are 8.6 $"
    lives = Ledger(made.folder.ledger_file).history().until(made.cloud.clock.now_s)
    ended = [life for life in lives if life.ending is not None]
    assert {life.ending for life in ended} == {Ending.SILENT}
    assert max(life.lifetime_s for life in ended) <= 1800 + 120
    assert {"silent", "crash loop"} <= set(names(told))
    assert "Debian GNU/Linux 12" in told.read_text(), "what the console says"


@pytest.mark.parametrize(
    "said",
    [
        "[   14.1] vcdl-agent[412]: 2026-11-28 09:00:00 on aws, for https://boinc.example.org/mine/\n",
        "[   98.2] setup.sh[398]: vcdl-setup: done\n",
    ],
)
def test_a_fleet_is_whole_again_once_a_machine_has_been_heard_of(fleet: tuple[FakeFleet, Path], said: str) -> None:
    made, _ = fleet
    day = Day(made)
    day.live(2)
    assert len(made.cloud.live) == 1, "the probe"
    made.cloud.said = said
    day.live(2)
    assert len(made.cloud.live) == 10


def test_a_machine_that_only_lived_for_long_does_not_end_the_crash_loop_of_the_others(tmp_path: Path) -> None:
    made = FakeFleet.begun(tmp_path, "capacity.target=80")
    made.cloud.console_error = CloudUnavailable("the cloud is away")  # of some nothing can be known
    day = Day(made)
    day.live(2)
    assert len(made.cloud.live) == 10, "nobody is ended on a guess"
    for one in made.cloud.live[:5]:
        made.cloud.end(one.id)
    made.later(60)
    for one in made.controller.reconcile_once().launched.instances:
        made.cloud.end(one.id, Ending.GAVE_UP)
    made.later(60)
    assert made.controller.reconcile_once().actions.crash_loop


def test_a_console_that_cannot_be_read_is_said_and_ends_no_machine(tmp_path: Path) -> None:
    made = FakeFleet.begun(tmp_path)
    made.cloud.console_error = CloudUnavailable("AWS refused get_console_output")
    day = Day(made)
    day.live(3)
    assert len(made.cloud.instances) == len(made.cloud.live) == 5
    assert "AWS refused get_console_output" in " ".join(made.controller.reconcile_once().lines())


def test_a_machine_that_the_project_knows_is_heard_of_although_its_image_has_no_console(tmp_path: Path) -> None:
    made = FakeFleet.begun(tmp_path)
    made.cloud.said = ""
    keeper = Controller(
        made.settings, made.cloud, made.folder, str, made.cloud.clock, price_source=lambda: made.cloud,
        hosts=lambda: [(f"host-{number}", f"i-{number:04d}.internal") for number in range(4)],
    )  # fmt: skip
    made.controller = keeper
    Day(made).live(0.55)
    gone = [one.id for one in made.cloud.instances.values() if not one.is_live]
    assert gone == ["i-0004"]
