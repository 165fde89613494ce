"""`vcdl fleet` as a user runs it, against moto through real boto3: the whole life of a fleet, and killed processes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.fleet.aws.moto_cloud import MotoCloud
from tests.fleet.fleet_files import AWS, fleet_file
from tests.fleet.project_page import WEAK, project_page
from tests.run_folders import DEMO, make_run
from vcdl.cli import exit_code_of
from vcdl.commands.plan import command as plan_command
from vcdl.errors import ExitCode
from vcdl.fleet.provider import SweepPace
from vcdl.job import save_job

pytestmark = pytest.mark.server


@pytest.fixture
def file(tmp_path: Path, cloud: MotoCloud, one_region: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("VCDL_TEST_KEY", WEAK)
    monkeypatch.setattr("vcdl.fleet.aws.provider.SweepPace", lambda: SweepPace(every_s=0.01, at_most_s=60.0))
    with project_page() as url:
        path = fleet_file(tmp_path, AWS.replace("https://boinc.example.org/mine/", url).replace("t3.", "m5."))
        path.write_text(path.read_text() + "reconcile_every_s: 5\ndrain_s: 0\n")
        yield path


def live(cloud: MotoCloud) -> list[str]:
    """All instances in the region, with any tags."""
    wanted = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    reservations = cloud.client().describe_instances(Filters=wanted)["Reservations"]
    return [item["InstanceId"] for reservation in reservations for item in reservation["Instances"]]


def fleet(*arguments: object) -> int:
    return int(exit_code_of(["fleet", *map(str, arguments)]))


def test_the_life_of_a_fleet(cloud: MotoCloud, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def status() -> dict[str, Any]:
        capsys.readouterr()
        assert fleet("status", file, "--json") == ExitCode.OK
        shown: dict[str, Any] = json.loads(capsys.readouterr().out)
        return shown

    assert fleet("plan", file) == ExitCode.OK
    assert "5 × m5.2xlarge" in capsys.readouterr().out
    assert fleet("up", file, "--dry-run") == ExitCode.OK
    assert "launch 40 vCPUs of preemptible instances: m5.2xlarge in us-east-1a or" in capsys.readouterr().out
    assert (live(cloud), (file.parent / "fleet").exists()) == ([], False)

    assert fleet("up", file) == ExitCode.OK
    assert "cifar: 40 of 40 vCPUs in 5 instances, 1.96 $/h" in capsys.readouterr().out
    assert fleet("up", file) == ExitCode.OK  # again: nothing to do
    assert "nothing to do" in capsys.readouterr().out
    assert len(live(cloud)) == 5

    cloud.preempt(live(cloud)[0])
    assert (status()["have"], status()["wanted"]) == (32, 40)
    assert fleet("scale", "48", file) == ExitCode.OK
    assert len(live(cloud)) == 6
    assert fleet("scale", "81", file) == ExitCode.BAD_JOB
    assert "from 0 to 80" in capsys.readouterr().err
    assert fleet("scale", "8", file) == ExitCode.OK
    shown = status()
    assert (shown["have"], sum(i["draining"] for i in shown["instances"])) == (8, 5)

    assert fleet("drain", file, "--wait") == ExitCode.OK
    assert "the fleet is gone, and nothing is left" in capsys.readouterr().out
    assert live(cloud) == []
    assert fleet("cost", file, "--json") == ExitCode.OK
    cost = json.loads(capsys.readouterr().out)
    assert (cost["instances"], cost["preempted"], cost["live"]) == (7, 1, 0)
    assert 0 < cost["spot_usd"] < cost["on_demand_usd"]
    assert fleet("down", file) == ExitCode.OK
    assert fleet("down", file, "--dry-run") == ExitCode.OK
    assert "nothing carries the tag vcdl-fleet=cifar" in capsys.readouterr().out


def test_a_plans_recommendation_is_launched(cloud: MotoCloud, file: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    save_job(DEMO, tmp_path / "job.yaml")
    planned = CliRunner().invoke(
        plan_command, [str(tmp_path / "job.yaml"), str(tmp_path / "run"), "--fleet", str(file), "--json"]
    )
    (tmp_path / "plan.json").write_text(planned.output)
    recommended = json.loads(planned.output)["recommended"]
    assert fleet("up", file, "--from-plan", tmp_path / "plan.json") == ExitCode.OK
    assert recommended.startswith(f"{len(live(cloud))} × m5.2xlarge")
    assert fleet("down", file, "--yes") == ExitCode.OK
