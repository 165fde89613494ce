"""`vcdl plan` over a run's journal: a recommendation, and one line for what cannot be planned."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from tests.fleet.fleet_files import AWS
from tests.run_folders import DEMO, make_run
from vcdl.cli import exit_code_of
from vcdl.commands.plan import command
from vcdl.errors import ExitCode, FleetError
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
    plan: dict[str, object] = json.loads(done.stdout)
    return plan


def test_a_run_is_planned_on_its_own_hosts(job: Path) -> None:
    plan = planned(job)
    assert plan["why"] == "the cheapest"
    assert "measured slots" in str(plan["recommended"])


def test_hosts_of_a_file_with_a_deadline(job: Path) -> None:
    (job.parent / "hosts.yaml").write_text(HOSTS)
    plan = planned(job, "--hosts", str(job.parent / "hosts.yaml"), "--deadline", "2h", "--set", "stop.epochs=50")
    assert plan["why"] == "the cheapest within the deadline"
    assert str(plan["recommended"]).startswith("4 × box")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--deadline", "6"], "use 6h, 90min or 2d"),
        (["--deadline", "soon"], "use 6h, 90min or 2d"),
        (["--fleet", "a", "--hosts", "b"], "choose one"),
        (["--fleet", "a", "--population", "boinc", "--clients", "5"], "choose one"),
        (["--population", "boinc"], "--clients 100,200,500"),
        (["--clients", "100"], "--population boinc"),
        (["--population", "boinc", "--clients", "10,few"], "such as 100,200,500"),
        (["--population", "boinc", "--clients", "0"], "such as 100,200,500"),
        (["--population", "boinc", "--clients", "5", "--budget-usd", "3"], "remove -o and --budget-usd"),
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


def test_a_file_is_the_same_by_what_is_in_it(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, weights in ((job, "job.weights.h5"), (job.parent / "run" / "job.yaml", "run.weights.h5")):
        (job.parent / weights).write_bytes(b"the same")
        model = DEMO.model.model_copy(update={"weights": job.parent / weights})
        save_job(DEMO.model_copy(update={"model": model}), place)
    assert planned(job)["why"] == "the cheapest"
    (job.parent / "job.weights.h5").write_bytes(b"others..")
    assert exit_code_of(["plan", str(job), str(job.parent / "run")]) != 0
    assert "trained another model" in capsys.readouterr().err


def test_a_deadline_that_nothing_keeps_names_the_nearest(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["plan", str(job), str(job.parent / "run"), "--deadline", "1s"]) == 1
    assert "1 s; the nearest is" in capsys.readouterr().out


def test_a_fleet_takes_its_target_from_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    chosen = {"choice": "5 × t3", "units": 40, "on_demand_units": 8}
    file.write_text(json.dumps({"recommended": "5 × t3", "forecasts": [chosen]}))
    assert planned_settings(file) == ["capacity.target=40", "capacity.on_demand.min=8"]
    file.write_text(json.dumps({"recommended": None, "forecasts": []}))
    with pytest.raises(FleetError, match="recommends no instances"):
        planned_settings(file)
    file.write_text("{}")
    with pytest.raises(FleetError, match="is not a plan"):
        planned_settings(file)


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        ("hosts: []", "expected a list, each entry"),
        ("hosts: [{name: a, samples_per_s: 0}]", "samples_per_s"),
        ("hosts: [{name: a, samples_per_s: .nan}]", "samples_per_s"),
        ("hosts: [{name: a, samples_per_s: 1.0e-320}]", "samples_per_s"),
        ("hosts: [{name: a, samples_per_s: 5, count: 1" + "0" * 400 + "}]", "count"),
        ("hosts: [{name: a, samples_per_s: 5, slots: 10000000}]", "slots"),
        ('hosts: [{name: "a\\e[31m", samples_per_s: 5}]', "name"),
        ("hosts: [{name: a, samples_per_sec: 5}]", "did you mean samples_per_s?"),
        ("hosts: [{name: a, samples_per_s: 5, usd_per_h: -1}]", "usd_per_h"),
        ("hosts: &a [*a]", "hosts.yaml"),
        ("- 1", "hosts.yaml"),
        ("\0", "hosts.yaml"),
    ],
)
def test_a_wrong_file_of_hosts_is_said_before_anything_is_measured(
    job: Path, hosts: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (job.parent / "hosts.yaml").write_text(hosts)
    assert exit_code_of(["plan", str(job), "--hosts", str(job.parent / "hosts.yaml")]) == ExitCode.BAD_JOB
    shown = capsys.readouterr()
    assert says in shown.err
    assert "measuring" not in shown.err
    assert "\x1b" not in shown.err
    assert len(shown.err.splitlines()) <= 2


def test_the_fastest_is_the_nearest_to_a_deadline_and_the_cheapest_to_a_budget(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, fleet = str(job.parent / "run"), job.parent / "fleet.yaml"
    fleet.write_text(AWS.replace("[t3.2xlarge]", "[t3.2xlarge, c5.2xlarge]"))
    said = []
    for wish in (["--deadline", "1s"], ["--budget-usd", "0.0000001"]):
        assert exit_code_of(["plan", str(job), run, "--fleet", str(fleet), *wish]) == 1
        said.append(capsys.readouterr().out.splitlines()[0])
    assert "1 s; the nearest is 3 × c5.2xlarge in us-east-1, on demand, " in said[0]
    assert "1e-07 $; the nearest is 3 × " in said[1]


def test_a_fleet_of_unknown_types_names_those_that_are_near(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job.parent / "fleet.yaml").write_text(AWS.replace("t3.2xlarge", "t3.2xlarg"))
    assert exit_code_of(["plan", str(job), "--fleet", str(job.parent / "fleet.yaml")]) != 0
    shown = capsys.readouterr()
    assert "near: t3.2xlarge" in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_population_is_planned_from_the_speed_of_a_run(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = ["--set", "data.shards=40", "--set", "training.local_epochs=5000"]
    plan = planned(job, "--population", "boinc", "--clients", "40,10", "--deadline", "12h", *big)
    forecasts = cast(list[dict[str, Any]], plan["forecasts"])
    assert [one["clients"] for one in forecasts if one["clients"] in (10, 40)] == [10, 40]
    assert forecasts[0]["wall_s"]["median"] > forecasts[-1]["wall_s"]["median"]
    kept = [one["clients"] for one in forecasts if one["kept"] >= 0.8]
    assert plan["recommended"] == (kept[0] if kept else None)
    assert plan["finer"] is None, "a shard is no longer than a batch"
    lab = planned(job, "--population", "lab", "--clients", "40", "--set", "training.batch_size=1", *big)
    (forecast,), finer = cast(list[dict[str, Any]], lab["forecasts"]), cast(dict[str, Any], lab["finer"])
    assert finer["shards"] == 80
    assert finer["wall_s"]["median"] < 0.9 * forecast["wall_s"]["median"]
    assert (
        exit_code_of(["plan", str(job), str(job.parent / "run"), "--population", "lab", "--clients", "10", *big]) == 0
    )
    assert capsys.readouterr().out.startswith("10 hosts: ")


def test_a_population_that_cannot_be_read_is_refused_before_anything_is_measured(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(["plan", str(job), "--population", "boink", "--clients", "10"]) == ExitCode.BAD_JOB
    shown = capsys.readouterr().err
    assert "boink" in shown
    assert "measuring" not in shown
