"""Jobs that come from elsewhere: a whole job or none, once for each key, and nothing of the server's within reach."""

import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.end_to_end.vcdl_process import applied, vcdl, vcdl_in_background, wait_until
from tests.fleet.fleet_files import fleet_file
from tests.run_folders import make_run
from tests.web.asking import asking
from tests.web.served import served
from vcdl.errors import RunFolderError
from vcdl.job import load_frozen_job
from vcdl.run.folder import RunFolder
from vcdl.web.accounts import Accounts
from vcdl.web.chunks import CHUNK_BYTES, ChunkStore
from vcdl.web.served_commands import CommandAnswer, CommandRequest, CommandRunner
from vcdl.web.sessions import FOLDER, UNBOUNDED, Caller, Role, TokenBounds
from vcdl.web.submissions import Submissions

JOB: dict[str, Any] = {"name": "away", "model": {"builtin": "mlp"}, "data": {"dataset": "digits"}}
API = "/api/v1"


class Sender:
    """A submitter, and the service's own processes kept from starting: the checks, and the runs that begin."""

    def __init__(
        self,
        runs: Path,
        monkeypatch: pytest.MonkeyPatch,
        fleets: Sequence[Path] = (),
        bounds: TokenBounds = UNBOUNDED,
    ) -> None:
        runs.mkdir(exist_ok=True)
        self.runs = runs
        self.begun: list[str] = []
        monkeypatch.setattr(Submissions, "_check", lambda _self, _folder: None)
        monkeypatch.setattr(Submissions, "_begin", lambda _self, name: self.begun.append(name))
        self.client: TestClient = asking(runs, logged_in=False, fleets=fleets)
        token = Accounts(runs).add("ada", Role.SUBMITTER, 1, bounds)
        self.client.headers["authorization"] = f"Bearer {token}"

    def send(self, job: Any, key: str = "key-12345", files: dict[str, list[str]] | None = None) -> tuple[int, str]:
        body = {
            "job": job if isinstance(job, str) else json.dumps(job),
            "files": [{"name": name, "chunks": chunks} for name, chunks in (files or {}).items()],
        }
        answer = self.client.post(f"{API}/jobs", json=body, headers={"Idempotency-Key": key})
        told = answer.json()
        return answer.status_code, told.get("job") or told["detail"]

    def put(self, content: bytes, name: str = "") -> tuple[int, str]:
        name = name or hashlib.sha256(content).hexdigest()
        return self.client.put(f"{API}/chunks/{name}", content=content).status_code, name


def _fails(sender: Sender, name: str, why: str) -> None:
    """Note why a job did not begin, as the service does."""
    (notes := sender.runs / FOLDER / "notes").mkdir(exist_ok=True)
    (notes / f"{name}.failure.txt").write_text(why)


@pytest.fixture
def sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sender:
    return Sender(tmp_path / "runs", monkeypatch)


def test_the_same_key_submits_once_and_another_takes_the_next_name(sender: Sender) -> None:
    assert sender.send(JOB) == (202, "away")
    assert sender.send(JOB) == (202, "away")
    assert sender.begun == ["away"]
    assert sender.send({**JOB, "seed": 2})[0] == 422  # another job with this key
    assert sender.send(JOB, "key-67890") == (202, "away-2")
    assert sender.client.get(f"{API}/jobs/away-2").json() == {"job": "away-2", "state": "beginning"}
    assert "about to start" in sender.client.post(f"{API}/jobs/away-2/stop").json()["detail"]
    page = sender.client.get("/jobs/away-2").text
    assert '<meta http-equiv="refresh" content="3">' in page
    _fails(sender, "away-2", "no <b>disk")
    assert "no &lt;b&gt;disk" in sender.client.get("/jobs/away-2").text


def test_chunks_are_sent_once_and_held_to_their_name(sender: Sender) -> None:
    content = b"x" * 1000
    digest = hashlib.sha256(content).hexdigest()
    assert sender.client.post(f"{API}/chunks", json=[digest]).json() == {"missing": [digest]}
    assert sender.put(content) == (204, digest)
    assert sender.client.post(f"{API}/chunks", json=[digest]).json() == {"missing": []}
    assert sender.put(b"other", digest)[0] == 422
    assert sender.put(content, "..%2F..%2Fx")[0] in (404, 422)
    assert sender.put(b"x" * ((8 << 20) + 1))[0] == 413


def test_whoever_holds_the_most_makes_room_and_shuts_nobody_out(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path / "chunks", 1000)

    def put(of: str, letter: bytes, size_bytes: int = 300) -> str:
        content = letter * size_bytes
        store.put(of, name := hashlib.sha256(content).hexdigest(), content)
        return name

    first, second, third = (put("hog", letter) for letter in (b"1", b"2", b"3"))
    for age_s, name in enumerate((third, second, first)):
        path = next((tmp_path / "chunks").rglob(name))
        os.utime(path, (time.time() - age_s - 1,) * 2)
    with pytest.raises(RunFolderError, match="no space for more data"):
        put("hog", b"4")
    mine = put("ada", b"1")
    assert store.missing("hog", [first, second, third]) == [first]
    assert store.missing("ada", [mine, second]) == [second], "what others have sent is nobody's business"
    os.utime(next((tmp_path / "chunks").rglob(third)), (0, 0))
    assert put("hog", b"5") == store.missing("ada", [hashlib.sha256(b"5" * 300).hexdigest()])[0]
    assert store.missing("hog", [second, third]) == [third], "an old one goes first"


def test_a_submission_that_is_refused_or_killed_leaves_nothing(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    jobs = sender.runs / FOLDER / "jobs"
    service = sender.client.app.state.service  # type: ignore[attr-defined]
    missing = {"d.npz": ["0" * 64]}
    assert "send it, then submit again" in sender.send({**JOB, "data": {"npz": "d.npz"}}, files=missing)[1]
    with monkeypatch.context() as patched:
        patched.setattr(Accounts, "record_submission", killed)
        with pytest.raises(KeyboardInterrupt):
            service.submissions.submit(Caller("ada", Role.SUBMITTER), "key", json.dumps(JOB), [])
    assert list(jobs.iterdir()) == []
    (jobs / "half").mkdir()  # as kill -9 leaves it
    assert sender.send(JOB) == (202, "away")
    sender.begun.clear()
    service.submissions.begin_those_left()
    assert sender.begun == ["away"]
    assert [path.name for path in jobs.iterdir()] == ["away"]
    make_run(sender.runs / "away").prepared_file.touch()
    service.submissions.begin_those_left()
    assert sender.begun == ["away"]


HOSTILE = [
    {**JOB, "model": {"python": "os:system"}},
    {**JOB, "model": {"keras": "/etc/passwd"}},
    {**JOB, "model": {"keras": "../../session_key"}},
    {**JOB, "model": {"builtin": "mlp", "weights": "../other/weights.npz"}},
    {**JOB, "model": {"from": "../../../runs/secret"}},
    {**JOB, "data": {"npz": "/etc/shadow"}},
    {**JOB, "data": {"npz": ["d.npz"]}},
    {**JOB, "model": {"builtin": "mlp", "weights": {}}},
    {**JOB, "data": {"npz": "http://169.254.169.254/latest/meta-data"}},
    {**JOB, "data": {"from": "s3://bucket/data"}},
    {**JOB, "store": "redis://10.0.0.1"},
    {**JOB, "store": {"url": "mysql://root@localhost/x"}},
    {**JOB, "grid": {"workers": 10_000}},
    {**JOB, "boinc": {"share": 100}},
    {**JOB, "name": "../../evil"},
    {**JOB, "name": ""},
    {**JOB, "name": 7},
    {**JOB, "model": {"builtin": "mlp", "python_folder": "/etc"}},
    {**JOB, "model": {"hub": "/etc"}},
    {**JOB, "unknown": 1},
    *({**JOB, "model": {"python": f"{module}:main"}} for module in ("vcdl", "numpy", "yaml", "sitecustomize", "x")),
    {**JOB, "model": {"builtin": "mlp", "code": "."}},
    {**JOB, "model": {"builtin": "mlp", "code": "vcdl.py"}},
    {**JOB, "model": {"keras_json": "model.json", "code": "sitecustomize.py"}},
    {**JOB, "model": {"keras_json": ["model.json"]}},
    "[]",
    "{",
    "[" * 10_000,
]


def test_a_job_may_name_the_files_that_come_with_it(sender: Sender) -> None:
    files = {name: [sender.put(name.encode())[1]] for name in ("model.json", "data.npz")}
    job = {**JOB, "model": {"keras_json": "model.json"}, "data": {"npz": "data.npz", "shards": 4}}
    assert sender.send(job, files=files) == (202, "away")
    sent = load_frozen_job(sender.runs / FOLDER / "jobs" / "away" / "job.yaml")
    assert sent.data.npz is not None
    assert sent.data.npz.read_bytes() == b"data.npz"


@pytest.mark.parametrize("job", HOSTILE, ids=lambda job: str(job)[-50:])
def test_a_job_that_leads_out_of_itself_is_refused(sender: Sender, job: Any) -> None:
    before = sorted(path for path in sender.runs.parent.rglob("*") if FOLDER not in path.parts)
    status, words = sender.send(job)
    assert (status, sender.begun) == (422, []), words
    assert "root:" not in words
    assert sorted(path for path in sender.runs.parent.rglob("*") if FOLDER not in path.parts) == before


ELSEWHERE = ("../x.npz", "/x.npz", "job.yaml", "a/b.npz", ".x", "x" * 99 + ".npz")
IMPORTED = ("vcdl.py", "numpy.py", "yaml.py", "sitecustomize.py", "x.so", "x.pth", "x.cpython-311-x86_64-linux-gnu.so")
OF_THE_SERVICE = ("failure.txt", "output.log", "process", "looked-at-x")


@pytest.mark.parametrize("key", [("data", "npz"), ("model", "keras"), ("model", "keras_json"), None])
@pytest.mark.parametrize("name", [*ELSEWHERE, *IMPORTED, *OF_THE_SERVICE])
def test_a_file_that_is_none_of_a_job_is_refused(sender: Sender, name: str, key: tuple[str, str] | None) -> None:
    _, chunk = sender.put(b"data")
    job = JOB if key is None else {**JOB, key[0]: {key[1]: name}}
    assert sender.send(job, files={name: [chunk]})[0] == 422
    assert not (sender.runs / FOLDER / "jobs").exists()


@pytest.mark.parametrize("sent", [["data.npz"] * 2, ["data.npz", "data-2.npz"], ["data.npz", "model.json"], []])
def test_each_file_of_a_job_is_named_by_one_key_and_comes_once(sender: Sender, sent: list[str]) -> None:
    _, chunk = sender.put(b"data")
    body = {
        "job": json.dumps({**JOB, "data": {"npz": "data.npz", "shards": 4}}),
        "files": [{"name": name, "chunks": [chunk]} for name in sent],
    }
    assert sender.client.post(f"{API}/jobs", json=body, headers={"Idempotency-Key": "key-12345"}).status_code == 422


def test_a_note_of_the_service_cannot_come_from_a_submission(sender: Sender) -> None:
    """A file of that name, as an older version took it, says nothing."""
    assert sender.send(JOB) == (202, "away")
    (sender.runs / FOLDER / "jobs" / "away" / "failure.txt").write_text("click here")
    assert sender.client.get(f"{API}/jobs/away").json() == {"job": "away", "state": "beginning"}
    assert "click here" not in sender.client.get("/jobs/away").text


def test_a_submitter_has_so_many_open_jobs_and_a_reader_none(sender: Sender) -> None:
    assert [sender.send(JOB, f"key-{number:05d}")[0] for number in range(11)] == [202] * 10 + [422]
    sender.client.headers["authorization"] = f"Bearer {Accounts(sender.runs).add('bob', Role.READER, 1)}"
    assert sender.send(JOB)[0] == 403
    assert sender.put(b"x")[0] == 403


def test_the_data_of_a_submitters_open_jobs_are_bounded(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcdl.web.submissions._OPEN_BYTES", CHUNK_BYTES + 5000)
    job = {**JOB, "data": {"npz": "data.npz", "shards": 4}}
    files = {"data.npz": [sender.put(bytes(4000))[1]]}
    assert sender.send(job, files=files) == (202, "away")
    assert "may use 8.0 MiB" in sender.send(job, "key-third", files)[1]


def test_a_wrong_key_is_refused_without_the_servers_path(sender: Sender) -> None:
    told = sender.send({**JOB, "seed": 0.5})
    assert told == (422, "job.yaml:6: seed: expected a whole number from 0 to 4294967295, got 0.5")


def test_what_was_sent_with_a_job_goes_with_its_end(sender: Sender) -> None:
    job = {**JOB, "data": {"npz": "data.npz", "shards": 4}}
    files = {"data.npz": [sender.put(bytes(4000))[1]]}
    for key in ("key-of-one", "key-of-two", "key-of-three"):
        assert sender.send(job, key, files)[0] == 202
    jobs = sender.runs / FOLDER / "jobs"
    make_run(sender.runs / "away")  # it is over, and the others are open
    _fails(sender, "away-2", "no store")
    assert sender.send(JOB, "key-of-four")[0] == 202
    assert sorted(str(path.relative_to(jobs)) for path in jobs.glob("*/*")) == [
        "away-3/data.npz", "away-3/job.yaml", "away-4/job.yaml",
    ]  # fmt: skip
    assert sorted(path.name for path in jobs.iterdir()) == ["away-3", "away-4"]
    assert sender.client.get(f"{API}/jobs/away-2").json()["error"] == "no store"
    assert sender.send(job, "key-of-one", files) == (202, "away")  # a late repetition makes nothing


def _with_account(folder: Path, monkeypatch: pytest.MonkeyPatch, account: int | None) -> Sender:
    (runs := folder / "project" / "vcdl" / "runs").mkdir(parents=True)
    (folder / "project" / "config.xml").touch()
    return Sender(runs, monkeypatch, bounds=TokenBounds(boinc_account=account))


def test_a_submitter_keeps_a_job_to_the_hosts_of_its_own_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = _with_account(tmp_path, monkeypatch, 17)
    for account in (17, 18, "18"):
        assert "only to their own hosts" in sender.send({**JOB, "boinc": {"account": account}}, "key-wrong")[1]
    assert sender.send({**JOB, "boinc": {"account": "own"}}) == (202, "away")
    job = load_frozen_job(sender.runs / FOLDER / "jobs" / "away" / "job.yaml")
    assert job.boinc.account == 17
    assert sender.send(JOB, "key-67890") == (202, "away-2")
    assert load_frozen_job(sender.runs / FOLDER / "jobs" / "away-2" / "job.yaml").boinc.account is None


def test_a_job_is_cut_for_the_workers_here_or_the_hosts_of_the_project(
    sender: Sender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1})
    job = {**JOB, "stop": {"epochs": 10}}
    for one, shards in ((sender, 8), (_with_account(tmp_path, monkeypatch, None), 80)):
        assert one.send(job) == (202, "away")
        assert load_frozen_job(one.runs / FOLDER / "jobs" / "away" / "job.yaml").data.shards == shards


def test_a_token_without_an_account_and_a_service_without_a_project_keep_no_job(
    sender: Sender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {**JOB, "boinc": {"account": "own"}}
    assert "this service has no BOINC project" in sender.send(job)[1]
    assert "this token of ada has no BOINC account" in _with_account(tmp_path, monkeypatch, None).send(job)[1]


def test_the_money_of_a_fleet_is_planned_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender(tmp_path / "runs", monkeypatch, fleets=[fleet_file(tmp_path)], bounds=TokenBounds(budget_usd=10.0))
    planned = {"forecasts": [{"choice": "3 × t3", "usd": {"median": 4.0}}], "recommended": "3 × t3"}
    asked: list[CommandRequest] = []

    def plan(_self: CommandRunner, request: CommandRequest, _rule: object) -> CommandAnswer:
        asked.append(request)
        return CommandAnswer(json.dumps(planned), "", 0)

    monkeypatch.setattr(CommandRunner, "run", plan)
    assert sender.send(JOB) == (202, "away")
    assert sender.send(JOB, "key-67890") == (202, "away-2")
    assert asked[0].options == {"--json": True, "--fleet": "fleet"}
    assert sender.send(JOB, "key-third") == (
        422,
        "this job would cost about 4.00 $, and ada has 2.00 $ left of 10.00 $: "
        "give it fewer epochs, or ask the operator for a token with a larger budget",
    )
    assert Accounts(sender.runs).planned_usd("ada") == 8.0
    make_run(sender.runs / "away").prepared_file.touch()
    changed = {"arguments": ["away", "stop.epochs=900"]}
    assert "within ada's budget" in sender.client.post(f"{API}/commands/set", json=changed).json()["detail"]
    more = {"arguments": ["away"], "options": {"--set": ["stop.epochs=900"]}}
    assert "within ada's budget" in sender.client.post(f"{API}/commands/resume", json=more).json()["detail"]
    planned["recommended"] = "nothing"
    assert "cannot be forecast" in sender.send(JOB, "key-fourth")[1]
    Accounts(sender.runs).costs_nothing("away-2")  # it did not begin
    planned["recommended"] = "3 × t3"
    assert sender.send(JOB, "key-fifth") == (202, "away-3")


def test_a_submitter_stops_its_own_jobs_and_no_others(sender: Sender) -> None:
    assert sender.send(JOB)[0] == 202
    make_run(sender.runs / "away")
    make_run(sender.runs / "other")
    assert sender.client.post(f"{API}/jobs/away/stop").status_code == 409  # finished, but it may
    assert sender.client.post(f"{API}/jobs/other/stop").status_code == 403


def _trains(folder: Path) -> bool:
    return (folder / "journal.db").exists() and len(applied(folder)) > 0


@pytest.mark.process
def test_a_submitted_job_whose_process_died_goes_on_by_itself_and_others_do_not(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "name: demo\nmodel: {builtin: mlp}\ndata: {dataset: digits, shards: 4}\nstop: {epochs: 60}\ngrid: {workers: 1}"
    )
    runs = tmp_path / "runs"
    for name, ends_by in {"sent": signal.SIGKILL, "paused": signal.SIGINT}.items():
        process = vcdl_in_background("run", tmp_path / "job.yaml", "--out", runs / name)
        wait_until(partial(_trains, runs / name), f"{name} trains")
        process.send_signal(ends_by)
        process.communicate()
    shutil.copytree(runs / "sent", runs / "own")
    for name in ("sent", "paused"):
        Accounts(runs).record_submission("ada", f"key-{name}", "digest", name, 0.0)
    with served(runs):
        wait_until(lambda: RunFolder(runs / "sent").running_pid is not None, "the submitted job continues")
        before = len(applied(runs / "sent"))
        wait_until(lambda: len(applied(runs / "sent")) > before, "it trains")
        assert RunFolder(runs / "own").running_pid is None
        assert RunFolder(runs / "paused").running_pid is None
        assert [(one.action, one.job) for one in Accounts(runs).actions(9)] == [("resume", "sent")]
        assert vcdl("stop", runs / "sent").returncode == 0
