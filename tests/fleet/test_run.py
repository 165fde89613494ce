"""The control loop: it waits for an unavailable cloud, logs a lasting problem once, and ends only with its fleet."""

import threading
from pathlib import Path

import pytest

from tests.fleet.fake_fleet import FakeFleet
from vcdl.errors import ExitCode, FleetError, FleetNotAuthorised, FleetUnavailable
from vcdl.fleet.refusal import ProblemKind
from vcdl.fleet.run import LONGEST_WAIT_S, ControlLoop, drain
from vcdl.fleet.state import FleetGoal

pytestmark = pytest.mark.process


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    return FakeFleet.begun(tmp_path, "reconcile_every_s=30")


def loop_of(fleet: FakeFleet) -> tuple[ControlLoop, list[str]]:
    lines: list[str] = []
    return ControlLoop(fleet.controller, 30, lines.append, threading.Event()), lines


def test_a_lost_instance_is_replaced_in_the_next_pass(fleet: FakeFleet) -> None:
    loop, lines = loop_of(fleet)
    assert loop.run_once() == (False, 30)
    assert loop.run_once() == (False, 30)
    assert len(lines) == 1
    fleet.later(600)
    fleet.cloud.end("i-0001")
    loop.run_once()
    assert len(fleet.cloud.live) == 5
    assert lines[1] == "launched: i-0005 (t3.2xlarge in us-east-1a)"


def test_an_unavailable_cloud_is_asked_less_and_less_often(fleet: FakeFleet) -> None:
    loop, lines = loop_of(fleet)
    fleet.cloud.outage = FleetUnavailable("AWS throttles: RequestLimitExceeded")
    waits = [loop.run_once()[1] for _ in range(9)]
    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, LONGEST_WAIT_S]
    assert lines[0] == "AWS throttles: RequestLimitExceeded; trying again in 5 s"
    fleet.cloud.outage = None
    assert loop.run_once() == (False, 30)
    assert len(fleet.cloud.live) == 5
    fleet.cloud.outage = FleetUnavailable("away")
    assert loop.run_once() == (False, 5)


@pytest.mark.parametrize("error", [FleetNotAuthorised("AWS: ExpiredToken"), FleetError("AWS refuses")])
def test_refusals_that_a_user_must_mend_do_not_end_it(fleet: FakeFleet, error: FleetError) -> None:
    loop, lines = loop_of(fleet)
    fleet.cloud.outage = error
    assert [loop.run_once()[1] for _ in range(5)] == [30, 30, 30, 40, 80]
    fleet.cloud.outage = None
    loop.run_once()
    assert len(fleet.cloud.live) == 5
    assert str(error) in lines[0]


def test_a_full_disk_launches_nothing_and_does_not_end_it(fleet: FakeFleet) -> None:
    fleet.folder.state_file.unlink()
    fleet.folder.state_file.mkdir()  # the state can be neither read nor written
    loop, lines = loop_of(fleet)
    assert loop.run_once() == (False, 30)
    assert "remove what is in its place" in lines[0]
    assert fleet.cloud.asked == []


def test_a_mistake_of_ours_does_not_end_it(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError("x")

    loop, lines = loop_of(fleet)
    with monkeypatch.context() as patch:
        patch.setattr(fleet.cloud, "pools", fail)
        assert loop.run_once() == (False, 60)
    assert lines == ["ZeroDivisionError: x: a bug in vcdl; trying again in 60 s"]
    loop.run_once()
    assert len(fleet.cloud.live) == 5


def test_a_lasting_problem_is_logged_once(fleet: FakeFleet) -> None:
    fleet.cloud.refuses = (ProblemKind.QUOTA, "MaxSpotInstanceCountExceeded")
    loop, lines = loop_of(fleet)
    for _ in range(5):
        loop.run_once()
        fleet.later(30)
    assert lines[0] == "launch refused: quota: MaxSpotInstanceCountExceeded"
    assert lines[1].startswith("all 2 pools refuse, and the first is asked again at ")
    assert lines[1].endswith(": quota: MaxSpotInstanceCountExceeded")
    assert len(lines) == 2


def test_a_drained_fleet_is_swept_and_ends_the_loop(fleet: FakeFleet) -> None:
    loop, lines = loop_of(fleet)
    loop.run_once()
    fleet.later(60)
    fleet.controller.change(drain)
    loop.run_once()
    fleet.later(900)
    loop.run_once()
    assert loop.run() == ExitCode.OK
    assert lines[-1] == "the fleet is gone, and nothing is left"
    assert fleet.folder.read().goal is FleetGoal.DOWN


def test_leftovers_are_named_and_are_a_failure(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, lines = loop_of(fleet)
    monkeypatch.setattr(fleet.cloud, "sweep", lambda: ("volume vol-1 in us-east-1",))
    fleet.another_process().take_down(print)
    assert loop.run() == ExitCode.FLEET
    assert lines[-1] == "left over: volume vol-1 in us-east-1; `vcdl fleet down` tries again"


def test_a_signal_to_end_leaves_the_instances_and_the_log_says_so(fleet: FakeFleet) -> None:
    ending, lines = threading.Event(), list[str]()

    def say(line: str) -> None:
        lines.append(line)
        ending.set()

    assert ControlLoop(fleet.controller, 30, say, ending).run() == ExitCode.OK
    assert len(fleet.cloud.live) == 5
    assert "lost ones are not replaced" in lines[-1]
