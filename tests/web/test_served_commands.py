"""Commands that a service runs for others: the words of the command line there, and nothing else of it."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from tests.fleet.fleet_files import fleet_file
from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run
from tests.web.asking import asking
from tests.web.served import served
from vcdl.cli import exit_code_of
from vcdl.errors.backoff import wait_until
from vcdl.remote.connections import ServiceConnection, keep_connection
from vcdl.run.frozen_job import read_frozen
from vcdl.web.accounts import Accounts
from vcdl.web.served_commands import CommandRequest, check_command
from vcdl.web.sessions import Role

API = "/api/v1/commands"
NEW = """
name: demo
model: {builtin: {name: mlp, units: [4]}}
data: {dataset: digits, shards: 2}
stop: {epochs: 2}
"""


def ask(client: TestClient, command: str, *jobs: str, **options: Any) -> tuple[int, dict[str, Any]]:
    answer = client.post(f"{API}/{command}", json={"arguments": jobs, "options": options})
    return answer.status_code, answer.json()


def of_role(runs: Path, client: TestClient, name: str, role: Role) -> TestClient:
    client.headers["authorization"] = f"Bearer {Accounts(runs).add(name, role, 1)}"
    return client


@pytest.mark.server
@pytest.mark.slow
def test_commands_are_the_same_at_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    make_run(runs / "one")
    make_run(runs / "two")
    paused = make_run(runs / "paused", recorded(FIRST_SESSION), finished=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(NEW)
    fleet = fleet_file(tmp_path)
    with served(runs, "--fleet", str(fleet)) as service:
        keep_connection(ServiceConnection("lab", service.url, Accounts(runs).add("ada", Role.OPERATOR, 1)))

        def said(*words: str) -> tuple[int, str, str]:
            code = exit_code_of([*words, "--server", "lab"])
            return code, *capsys.readouterr()

        def said_there(*words: str) -> tuple[int, str, str]:
            with monkeypatch.context() as there:
                there.chdir(runs)
                code = exit_code_of(words)
            return code, *capsys.readouterr()

        for asked in (("status", "one"), ("compare", "one", "two"), ("profile", "paused")):
            assert said_there(*asked)[0] == 0
            assert said(*asked) == said_there(*asked)
        assert said("status", "none")[0] == said_there("status", "none")[0] == 6
        new = str(tmp_path / "job.yaml")
        for words in ((new, "one", "--set", "stop.epochs=9"), (new, "one", "--deadline", "1s")):
            assert said("plan", *words)[:2] == said_there("plan", *words)[:2]
        with_fleet = said_there("plan", new, "one", "--fleet", str(fleet))
        assert "t3.2xlarge" in with_fleet[1]
        assert said("plan", new, "one", "--fleet", "fleet")[:2] == with_fleet[:2]
        assert "there is no fleet 'other' at this service, only fleet" in said("plan", "one", "--fleet", "other")[2]
        assert "compare at a service does not accept a job file" in said("compare", new)[2]
        assert not list((runs / ".service").glob("looked-at-*"))
        assert json.loads(said("jobs", "--json")[1])[0]["job"] == "paused"
        assert said("jobs")[1].splitlines()[1].split()[:3] == ["paused", "paused", "2/2"]
        assert said("set", "paused", "stop.patience=3")[:2] == (0, "paused: stop.patience is 3, was not set\n")
        assert read_frozen(paused).stop.patience == 3
        assert said("set", "one", "stop.patience=3")[::2] == (
            6, "vcdl: error: one is finished: there is nothing left to change\n",
        )  # fmt: skip
        assert said("plot", "one", "two", "-o", "both.png")[:2] == (0, "plot both.png\n")
        assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
        assert wait_until(lambda: not list((runs / ".service" / "outputs").iterdir()), 10)
        assert said("watch", "one")[1].splitlines()[0] == "one on lab: finished"
        code, _, told = said("status", "one", "--fleet", "fleet.yaml")
        assert (code, told) == (3, "vcdl: error: status at a service does not accept --fleet: it accepts --json\n")


@pytest.mark.parametrize(
    "request_",
    [
        CommandRequest("run", ["demo"]),
        CommandRequest("token", ["add"]),
        CommandRequest("status", []),
        CommandRequest("status", ["one", "two"]),
        CommandRequest("status", ["one"], {"--project-dir": "/"}),
        CommandRequest("plan", ["one"], {"--set": ["data.from=/etc/passwd"]}),
        CommandRequest("plan", ["one"], {"--hosts": "/etc/passwd"}),
        CommandRequest("set", ["one", "grid.workers=999"]),
        CommandRequest("set", ["one", "boinc.share=100"]),
        CommandRequest("resume", ["one"], {"--set": ["grid.servers=999"]}),
        CommandRequest("export", ["one"]),
        CommandRequest("export", ["one"], output="../../x.keras"),
        CommandRequest("export", ["one"], output="/etc/cron.d/x.keras"),
        CommandRequest("set", ["one", "a=b"], output="x.png"),
    ],
    ids=str,
)
def test_what_is_not_in_the_table_is_refused(request_: CommandRequest) -> None:
    with pytest.raises(
        Exception, match=r"at a service|a service does not run|may be|cannot write|cannot be|of the server"
    ):
        check_command(request_, Role.SUBMITTER)


def test_a_new_job_is_planned_for_a_submitter_alone_and_as_one_that_is_sent(tmp_path: Path) -> None:
    make_run(tmp_path / "one")
    client = asking(tmp_path, logged_in=False)
    new = {"job": json.dumps({"name": "away", "model": {"builtin": "mlp"}, "data": {"from": "/etc/passwd"}})}
    for role, status, words in (
        (Role.READER, 403, "may not submit a job"),
        (Role.SUBMITTER, 422, "refers to something outside of the job"),
    ):
        of_role(tmp_path, client, "ada", role)
        answer = client.post(f"{API}/plan", json={"arguments": ["one"], "new": new})
        assert answer.status_code == status
        assert words in answer.json()["detail"]


@pytest.mark.parametrize("name", ["--help", "-", "../runs/one", "/etc", "one/../one", ".service", "one\n"])
def test_an_argument_is_a_jobs_name_or_nothing(tmp_path: Path, name: str) -> None:
    make_run(tmp_path / "runs" / "one")
    status, told = ask(asking_with_token(tmp_path / "runs"), "status", name)
    assert (status, "there is no job" in told["detail"]) == (404, True)


def asking_with_token(runs: Path) -> TestClient:
    return of_role(runs, asking(runs, logged_in=False), "root", Role.OPERATOR)


def test_each_command_needs_its_role_and_is_logged(tmp_path: Path) -> None:
    make_run(tmp_path / "one", recorded(FIRST_SESSION), finished=False)
    client = asking(tmp_path, logged_in=False)
    of_role(tmp_path, client, "bob", Role.READER)
    assert ask(client, "set", "one", "stop.patience=3")[0] == 403
    assert ask(client, "stop", "one")[0] == 403
    of_role(tmp_path, client, "ada", Role.SUBMITTER)
    assert ask(client, "set", "one", "stop.patience=3")[0] == 403  # not hers
    assert ask(client, "hosts%20ban", "host-1")[0] == 403
    actions = [f"{one.caller} {one.action} {one.job}" for one in Accounts(tmp_path).actions(9)]
    assert actions == ["ada hosts ban host-1", "ada set one", "bob stop one", "bob set one"]


def test_a_job_with_code_of_its_own_is_neither_resumed_nor_exported_here(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "demo", recorded(FIRST_SESSION), finished=False)
    (tmp_path / "mine").mkdir()
    keys = yaml.safe_load(folder.job_file.read_text())
    keys["model"] = {"python": "mine:build", "code": str(tmp_path / "mine")}
    folder.job_file.write_text(yaml.safe_dump(keys))
    client = of_role(tmp_path, asking(tmp_path, logged_in=False), "op", Role.OPERATOR)
    asked = {"arguments": ["demo"], "options": {}}
    for answer in (
        client.post("/api/v1/jobs/demo/resume"),
        client.post(f"{API}/resume", json=asked),
        client.post(f"{API}/export", json=asked | {"output": "model.keras"}),
    ):
        assert answer.status_code == 409
        assert answer.json()["detail"] == (
            "the model of demo has its own code, which a service does not run: run this command on the service's "
            "machine, without --server"
        )
    assert not (folder.path / "resume.log").exists()


def test_a_command_says_what_it_would_say_in_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "one")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")  # as `vcdl serve` has it: a command would take it for a user's wish
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-operator")  # no command needs it, and some load models
    given: list[dict[str, str]] = []

    def run(*command: str, env: dict[str, str], **_: object) -> "subprocess.CompletedProcess[bytes]":
        given.append(env)
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr("vcdl.web.served_commands.run_child", run)
    assert ask(asking_with_token(tmp_path), "status", "one")[0] == 200
    assert not {"TF_CPP_MIN_LOG_LEVEL", "AWS_SECRET_ACCESS_KEY"} & given[0].keys()


@pytest.mark.process
def test_a_file_is_fetched_once_and_by_its_name_alone(tmp_path: Path) -> None:
    make_run(tmp_path / "one")
    client = asking_with_token(tmp_path)
    asked = {"arguments": ["one"], "output": "p.svg"}
    told = client.post(f"{API}/plot", json=asked).json()
    assert told["output"] == "plot p.svg\n"
    path = f"/api/v1/outputs/{told['file']}"
    assert b"<svg" in client.get(path).content
    assert client.get(path).status_code == 409
    assert client.get("/api/v1/outputs/..%2F..%2F/session_key").status_code in (404, 409)


def test_a_command_that_takes_long_keeps_its_connection_with_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "one")
    monkeypatch.setattr("vcdl.web.api._QUICK_S", 0.05)

    def slow(*command: str, **_: object) -> "subprocess.CompletedProcess[bytes]":
        time.sleep(0.3)
        return subprocess.CompletedProcess(command, 3, b"said", b"why")

    monkeypatch.setattr("vcdl.web.served_commands.run_child", slow)
    client = asking_with_token(tmp_path)
    answer = client.post(f"{API}/status", json={"arguments": ["one"]})
    assert answer.text.startswith("  ")
    assert answer.json() == {"output": "said", "errors": "why", "exit_code": 3, "file": None}

    def too_slow(*command: str, **_: object) -> "subprocess.CompletedProcess[bytes]":
        time.sleep(0.3)
        raise subprocess.TimeoutExpired(command, 150)

    monkeypatch.setattr("vcdl.web.served_commands.run_child", too_slow)
    answer = client.post(f"{API}/status", json={"arguments": ["one"]})
    assert answer.json()["errors"] == "vcdl: error: status took more than 150 s at the service\n"
    assert answer.json()["exit_code"] != 0
