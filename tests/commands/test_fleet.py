"""`vcdl fleet` on a cloud in memory: the output, questions and exit code of each command."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.fleet.fake_cloud import FakeCloud
from tests.fleet.fake_fleet import POOLS, FakeFleet
from tests.fleet.fleet_files import AWS, fleet_file
from vcdl.cli import exit_code_of, vcdl
from vcdl.errors import ExitCode, FleetError, FleetUnavailable
from vcdl.fleet.controller import Controller
from vcdl.fleet.prices import PriceTable, refreshed_file
from vcdl.fleet.refusal import ProblemKind
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.state import FleetGoal


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeFleet:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = FakeFleet.make(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VCDL_TEST_KEY", "7_abc")
    monkeypatch.setattr("vcdl.fleet.open.weak_key", lambda url, key: key)
    monkeypatch.setattr("vcdl.fleet.open.open_provider", lambda settings: made.cloud)
    monkeypatch.setattr("time.time", made.cloud.clock)
    monkeypatch.setattr(Controller.__init__, "__defaults__", (made.cloud.clock, None, None, None))
    monkeypatch.setattr("vcdl.fleet.open.open_price_source", lambda *_: made.cloud)
    return made


def vcdl_fleet(*arguments: str) -> int:
    return int(exit_code_of(["fleet", *arguments]))


def test_up_shows_a_preview_and_the_result(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert vcdl_fleet("up") == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [
        "launch 40 vCPUs of preemptible instances: t3.2xlarge in us-east-1a or us-east-1b",
        "launched: " + ", ".join(f"i-{n:04d} (t3.2xlarge in us-east-1{'ab'[n % 2]})" for n in range(5)),
        "cifar: 40 of 40 vCPUs in 5 instances, 0.54 $/h, 0.01 $ so far, prices of 1970-01-12",
        "instances drain after 2 h 00 min unless `vcdl fleet run fleet.yaml` renews their lease",
    ]


def test_a_refusal_of_the_cloud_is_shown_and_stays_in_the_status(
    fleet: FakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.cloud.refuses = (ProblemKind.NOT_AUTHORISED, "UnauthorizedOperation")
    assert vcdl_fleet("up") == ExitCode.FLEET
    assert "launch refused: not_authorised: UnauthorizedOperation" in capsys.readouterr().out
    assert vcdl_fleet("status") == ExitCode.OK
    refused = "not asked for 5 min 00 s: t3.2xlarge in us-east-1a or us-east-1b: not_authorised: UnauthorizedOperation"
    assert refused in capsys.readouterr().out


def test_the_status_shows_instances_goal_control_loop_and_cooldowns(
    fleet: FakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.cloud.empty = {POOLS[1]}
    vcdl_fleet("up")
    fleet.later(60)
    capsys.readouterr()
    assert vcdl_fleet("status") == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cifar: 40 of 40 vCPUs in 5 instances, 0.54 $/h, 0.01 $ so far, prices of 1970-01-12"
    assert lines[1] == "goal up; no control loop: `vcdl fleet run` replaces lost instances; last pass 1 min 00 s ago"
    assert (
        sum("t3.2xlarge in us-east-1a" in line and line.endswith("running, lease for 1 h 59 min") for line in lines)
        == 5
    )
    refused = "t3.2xlarge in us-east-1b: no_capacity: InsufficientInstanceCapacity"
    assert lines[-1] == f"not asked for 14 min 00 s: {refused}"
    assert vcdl_fleet("status", "--json") == ExitCode.OK
    shown = json.loads(capsys.readouterr().out)
    assert (shown["have"], shown["goal"], len(shown["instances"]), shown["process"]) == (40, "up", 5, None)
    vcdl_fleet("drain")
    fleet.later(60)
    capsys.readouterr()
    vcdl_fleet("status")
    assert sum(line.endswith("draining for 1 min 00 s") for line in capsys.readouterr().out.splitlines()) == 5


def test_scale_needs_a_fleet_that_is_up_and_a_number_within_the_maximum(
    fleet: FakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vcdl_fleet("scale", "8") == ExitCode.FLEET
    assert "cifar is not up" in capsys.readouterr().err
    vcdl_fleet("up")
    for wrong in ("81", "-1", "many"):
        assert vcdl_fleet("scale", "--", wrong) == ExitCode.BAD_JOB
    assert vcdl_fleet("scale", "80") == ExitCode.OK
    assert len(fleet.cloud.live) == 10
    assert vcdl_fleet("scale", "file") == ExitCode.OK
    assert len(fleet.cloud.live) == 5


@pytest.mark.parametrize(
    ("text", "arguments"),
    [(AWS.replace("target: 40", "target: many"), ()), (AWS + "drain_s: [1,\n", ()), ("", ("--name", "cifar"))],
    ids=["a value", "syntax", "no file"],
)  # fmt: skip
def test_down_needs_nothing_but_a_name(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, text: str, arguments: tuple[str, ...]
) -> None:
    vcdl_fleet("up")
    Path("fleet.yaml").write_text(text)
    refreshed_file().write_text("no prices\n")
    fleet.folder.ledger_file.write_text("no ledger\n")
    fleet.folder.state_file.write_text("no state")
    asked: list[FleetSettings] = []

    def opened(settings: FleetSettings) -> FakeCloud:
        asked.append(settings)
        return fleet.cloud

    monkeypatch.setattr("vcdl.fleet.open.open_provider", opened)
    assert vcdl_fleet("down", *arguments) == ExitCode.OK
    assert ([settings.name for settings in asked], fleet.cloud.live) == (["cifar"], [])


def test_down_without_a_file_or_a_name_says_how(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    Path("fleet.yaml").write_text("capacity: 7\n")
    assert vcdl_fleet("down") == ExitCode.BAD_JOB
    assert "`vcdl fleet down --name NAME`" in capsys.readouterr().err


def test_down_with_leftovers_fails_and_names_them(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleet.cloud, "sweep", lambda: ("volume vol-1 in us-east-1",))
    assert vcdl_fleet("down") == ExitCode.FLEET
    assert (
        "these still exist: volume vol-1 in us-east-1; `vcdl fleet down fleet.yaml` tries again"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("answer", "left"), [("n\n", 5), ("y\n", 0)])
def test_down_asks_on_a_terminal(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    vcdl_fleet("up")
    monkeypatch.setattr("vcdl.commands.fleet.is_terminal", lambda: True)
    result: Result = CliRunner().invoke(vcdl, ["fleet", "down"], input=answer)
    assert "end it? [y/N]" in result.output
    assert len(fleet.cloud.live) == left
    assert fleet.folder.read().goal is (FleetGoal.UP if left else FleetGoal.DOWN)


def test_cost_of_an_hour_and_also_when_the_cloud_is_away(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    vcdl_fleet("up")
    fleet.later(3600)
    capsys.readouterr()
    assert vcdl_fleet("cost", "--json") == ExitCode.OK
    cost = json.loads(capsys.readouterr().out)
    assert (cost["live"], cost["spot_usd"], cost["on_demand_usd"]) == (5, 0.53516, 1.69996)
    fleet.cloud.outage = FleetUnavailable("AWS throttles")
    assert vcdl_fleet("cost") == ExitCode.OK
    shown = capsys.readouterr()
    assert "so far   $0.54, $1.70 on demand, 69 % saved" in shown.out
    assert "the cloud could not be asked" in shown.err


def test_refreshed_prices_are_dated_by_the_clock_by_which_passes_tell_their_age(fleet: FakeFleet) -> None:
    fleet.cloud.clock_offset_s = 7200.0
    assert vcdl_fleet("prices", "--refresh") == ExitCode.OK
    (row,) = PriceTable.read(refreshed_file()).by_key.values()
    assert row.as_of.timestamp() == fleet.cloud.clock.now_s + 7200.0


def test_plan_and_up_say_which_part_of_the_budget_is_kept(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert vcdl_fleet("plan", "--offline", "--set", "budget_usd=3") == ExitCode.OK
    assert "3) 1.35 $ are reserved to drain for 17 min 00 s; the rest lasts for 20 min" in capsys.readouterr().out
    assert vcdl_fleet("up", "--dry-run", "--set", "budget_usd=3") == ExitCode.OK
    up = "of budget_usd (3) 0.48 $ are reserved to drain for 17 min 00 s; the rest lasts for 1 h 28 min at list prices"
    assert up in capsys.readouterr().out
    assert vcdl_fleet("up", "--set", "budget_usd=0.1") == ExitCode.FLEET
    assert "the budget pays for 0 of 40 units" in capsys.readouterr().out


def test_the_prices_in_use(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert vcdl_fleet("prices") == ExitCode.OK
    assert "unknown $/h    0.3328 on demand" in capsys.readouterr().out
    assert vcdl_fleet("prices", "--refresh") == ExitCode.OK
    assert "0.09984 $/h" in capsys.readouterr().out


def test_without_the_account_key_up_changes_nothing(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VCDL_TEST_KEY")
    assert vcdl_fleet("up") == ExitCode.FLEET
    assert "VCDL_TEST_KEY contains no account key" in capsys.readouterr().err
    assert not fleet.folder.path.exists()
    assert vcdl_fleet("status") == ExitCode.OK  # needs no key
    assert vcdl_fleet("down") == ExitCode.OK


def test_a_cloud_that_refuses_is_one_line(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.cloud.outage = FleetError("AWS refused describe_instances: no")
    for command in ("up", "status", "drain"):
        assert vcdl_fleet(command) == ExitCode.FLEET
        assert capsys.readouterr().err == "vcdl: error: AWS refused describe_instances: no\n"
    assert vcdl_fleet("down") == ExitCode.FLEET
    assert (
        "these still exist: AWS refused describe_instances: no; `vcdl fleet down fleet.yaml`" in capsys.readouterr().err
    )


def test_a_strong_key_is_not_what_instances_get(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vcdl.fleet.open.weak_key", lambda url, key: "7_weak")
    assert vcdl_fleet("up") == ExitCode.OK
    assert "instances get the weak key instead" in capsys.readouterr().out


def test_a_unit_runs_the_fleet_and_never_raises_one_that_is_down(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vcdl_fleet("unit") == ExitCode.FLEET
    assert "use `project > account_key_file`" in capsys.readouterr().err
    text = AWS.replace("account_key_env: VCDL_TEST_KEY", "account_key_file: key")
    fleet_file(Path.cwd(), text)
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert vcdl_fleet("unit", "--set", "capacity.target=8") == ExitCode.OK
    shown = capsys.readouterr().out
    assert 'Environment="AWS_PROFILE=mine"' in shown
    assert "sudo loginctl enable-linger $USER" in shown, "a user may not everywhere"
    assert f"-m vcdl fleet run --resume {Path.cwd() / 'fleet.yaml'} --set capacity.target=8" in shown
    assert vcdl_fleet("run", "--resume") == ExitCode.OK
    assert "is down, and stays so" in capsys.readouterr().out
    assert fleet.cloud.asked == []


def test_a_list_shows_everything_of_all_fleets(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert vcdl_fleet("list") == ExitCode.OK
    assert capsys.readouterr().out == "nothing carries the tag vcdl-fleet\n"
    vcdl_fleet("up")
    capsys.readouterr()
    fleet.cloud.away_regions = {"us-west-2"}
    assert vcdl_fleet("list") == ExitCode.FLEET
    assert "instance i-0000 in us-east-1\n" in capsys.readouterr().out
