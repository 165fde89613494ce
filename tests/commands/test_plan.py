"""`vcdl plan` over a run's journal: a recommendation, and one line for what cannot be planned."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.run_folders import DEMO, make_run
from vcdl.cli import exit_code_of
from vcdl.commands.plan import command
from vcdl.errors import FleetError
from vcdl.fleet.choices import planned_settings
from vcdl.job import save_job

HOSTS = "hosts:\n  - {name: box, count: 4, samples_per_s: 50, fixed_s: 2, usd_per_h: 1.0, spot_usd_per_h: 0.3}\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    save_job(DEMO, tmp_path / "job.yaml")
    make_run(tmp_path / "run")
    return tmp_path / "job.yaml"


def planned(job: Path, *arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(command, [str(job), str(job.parent / "run"), "--json", *arguments], standalone_mode=False)
    assert done.exception is None, done.output
    plan: dict[str, object] = json.loads(done.output)
    return plan


def test_a_run_is_planned_on_its_own_hosts(job: Path) -> None:
    plan = planned(job)
    assert plan["why"] == "the cheapest"
    assert "measured slots" in str(plan["recommended"])


def test_hosts_of_a_file_with_a_deadline(job: Path) -> None:
    (job.parent / "hosts.yaml").write_text(HOSTS)
    plan = planned(job, "--hosts", str(job.parent / "hosts.yaml"), "--deadline", "2h", "--set", "stop.epochs=50")
    assert plan["why"] == "the cheapest within the time"
    assert str(plan["recommended"]).startswith("4 × box")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--deadline", "6"], "6h, 90min and 2d are"),
        (["--deadline", "soon"], "6h, 90min and 2d are"),
        (["--fleet", "a", "--hosts", "b"], "choose one"),
    ],
)
def test_wrong_wishes_are_one_line(
    job: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(["plan", str(job), str(job.parent / "run"), *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_run_of_another_model_is_refused(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = ["--set", "model={builtin: {name: mlp, units: [9]}}"]
    assert exit_code_of(["plan", str(job), str(job.parent / "run"), *other]) != 0
    assert "trained another model" in capsys.readouterr().err


def test_a_run_without_uploads_is_refused(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(job.parent / "empty", events=[], finished=False)
    assert exit_code_of(["plan", str(job), str(job.parent / "empty")]) != 0
    assert "no upload that was folded in" in capsys.readouterr().err


def test_a_deadline_that_nothing_keeps_names_the_nearest(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["plan", str(job), str(job.parent / "run"), "--deadline", "1s"]) == 1
    assert "nothing here keeps 1 s; the nearest is" in capsys.readouterr().out


def test_a_fleet_takes_its_target_from_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    chosen = {"choice": "5 × t3", "units": 40, "on_demand_units": 8}
    file.write_text(json.dumps({"recommended": "5 × t3", "forecasts": [chosen]}))
    assert planned_settings(file) == ["capacity.target=40", "capacity.on_demand.min=8"]
    file.write_text(json.dumps({"recommended": None, "forecasts": []}))
    with pytest.raises(FleetError, match="recommends no instances"):
        planned_settings(file)
    file.write_text("{}")
    with pytest.raises(FleetError, match="is no plan"):
        planned_settings(file)
