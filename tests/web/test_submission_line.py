"""The line of submissions: many at once, one a caller, and pages that are answered meanwhile."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run
from tests.web.asking import answering
from tests.web.test_submissions import API, JOB, Sender
from vcdl.cli import exit_code_of
from vcdl.commands import _elsewhere
from vcdl.errors import JobError
from vcdl.remote.connections import ServiceConnection, keep_connection
from vcdl.remote.service_client import ServiceClient
from vcdl.web.accounts import Accounts
from vcdl.web.catalogue import JobCatalogue
from vcdl.web.served_commands import ServiceBusy
from vcdl.web.service import _RESUMES_AT_ONCE, WebService
from vcdl.web.sessions import Caller, Role
from vcdl.web.submission_line import AT_ONCE, MOST_WAITING
from vcdl.web.submissions import Submissions

MANY = 60
"""More than the 40 threads that answer pages."""


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Holds all checks up until it is set."""
    through = threading.Event()
    monkeypatch.setattr("vcdl.web.api._SUBMIT_WAIT_S", 0.05)
    yield through
    through.set()


@pytest.fixture
def sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: threading.Event) -> Iterator[Sender]:
    sender = Sender(tmp_path / "runs", monkeypatch)
    monkeypatch.setattr(Submissions, "_check", lambda _self, _folder: checks.wait(60))
    yield sender
    checks.set()
    for thread in threading.enumerate():  # else it begins what it checked in the next test, and for real
        if thread.name == "vcdl-submissions":
            thread.join(60)


def _as(sender: Sender, name: str) -> Sender:
    sender.client.headers["authorization"] = f"Bearer {Accounts(sender.runs).add(name, Role.SUBMITTER, 1)}"
    return sender


def _post(sender: Sender, key: str = "key-12345", job: Any = JOB) -> tuple[int, dict[str, Any], str]:
    answer = sender.client.post(f"{API}/jobs", json={"job": json.dumps(job)}, headers={"Idempotency-Key": key})
    return answer.status_code, answer.json(), answer.headers.get("retry-after", "")


def _until_taken(sender: Sender, key: str = "key-12345") -> dict[str, Any]:
    for _ in range(600):
        _, told, _ = _post(sender, key)
        if told.get("state") != "waiting":
            return told
        time.sleep(0.05)
    raise AssertionError(told)


def test_each_caller_waits_for_one_and_is_told_its_place(sender: Sender, checks: threading.Event) -> None:
    for number in range(AT_ONCE):
        assert _post(_as(sender, f"first-{number}"))[:2] == (202, {"state": "waiting", "place": 0})
    assert _post(_as(sender, "bob"))[:2] == (202, {"state": "waiting", "place": 1})
    assert _post(_as(sender, "eve"))[:2] == (202, {"state": "waiting", "place": 2})
    assert _post(sender)[:2] == (202, {"state": "waiting", "place": 2}), "the same key has the same place"
    status, told, retry = _post(sender, "another-key")
    assert (status, retry) == (429, "10")
    assert "another job of eve is being checked" in told["detail"]
    assert _post(sender, job={**JOB, "seed": 2})[0] == 422, "the same key for another job"
    checks.set()
    for name in (*(f"first-{number}" for number in range(AT_ONCE)), "bob", "eve"):
        assert _until_taken(_as(sender, name))["job"].startswith("away")
    assert _until_taken(sender, "another-key")["job"].startswith("away")
    assert len({*sender.begun}) == len(sender.begun) == AT_ONCE + 3


def test_a_full_line_says_when_to_come_again(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcdl.web.submission_line.MOST_WAITING", 3)
    answers = [_post(_as(sender, f"caller-{number}")) for number in range(AT_ONCE + 4)]
    assert [status for status, _, _ in answers] == [202] * (AT_ONCE + 3) + [429]
    assert answers[-1][2] == "10"
    assert MOST_WAITING >= 100


def test_an_error_is_told_once_and_the_same_key_may_try_again(
    sender: Sender, checks: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_self: Submissions, _folder: Path) -> None:
        checks.wait(60)
        raise JobError("the model is wrong")

    monkeypatch.setattr(Submissions, "_check", refused)
    assert _post(sender)[1]["state"] == "waiting"
    checks.set()
    assert _until_taken(sender)["detail"] == "the model is wrong"
    monkeypatch.setattr(Submissions, "_check", lambda _self, _folder: None)
    assert _until_taken(sender) == {"job": "away"}
    assert _post(sender)[1] == {"job": "away"}


def _asked(port: int, path: str, token: str, timeout_s: float) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        answer.read()
        return int(answer.status)


@pytest.mark.server
@pytest.mark.slow
def test_pages_are_answered_while_many_submissions_wait(sender: Sender, checks: threading.Event) -> None:
    accounts = Accounts(sender.runs)
    reader = accounts.add("reader", Role.READER, 1)
    tokens = [accounts.add(f"submitter-{number}", Role.SUBMITTER, 1) for number in range(MANY)]
    places: list[int] = []
    with answering(sender.runs) as port, ThreadPoolExecutor(MANY) as pool:

        def submit(token: str) -> str:
            client = ServiceClient(ServiceConnection("here", f"http://127.0.0.1:{port}", token))
            return client.submit({"job": json.dumps(JOB), "files": []}, waits=places.append)

        coming: list[Future[str]] = [pool.submit(submit, token) for token in tokens]
        while len(places) < MANY:
            time.sleep(0.05)
        try:
            for path in ("/login", "/", "/api/v1/jobs", "/healthz"):
                assert _asked(port, path, reader, timeout_s=20) == 200
        finally:
            checks.set()
        wait(coming)
    assert sorted(one.result() for one in coming) == sorted(sender.begun)
    assert len(sender.begun) == MANY
    assert places[:MANY].count(0) <= AT_ONCE
    assert max(places) <= MANY - AT_ONCE


@pytest.mark.server
@pytest.mark.slow
def test_who_submits_from_a_terminal_sees_the_place_in_the_line(
    sender: Sender,
    checks: threading.Event,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def waits(place: int) -> None:
        told(place)
        checks.set()

    told = _elsewhere._waits
    monkeypatch.setattr(_elsewhere, "_waits", waits)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "job.yaml").write_text("name: away\nmodel: {builtin: mlp}\ndata: {dataset: digits, shards: 2}\n")
    accounts, places = Accounts(sender.runs), list[int]()
    with answering(sender.runs) as port, ThreadPoolExecutor(AT_ONCE) as pool:
        url = f"http://127.0.0.1:{port}"
        for number in range(AT_ONCE):
            client = ServiceClient(ServiceConnection("x", url, accounts.add(f"first-{number}", Role.SUBMITTER, 1)))
            pool.submit(client.submit, {"job": json.dumps(JOB), "files": []}, waits=places.append)
        while len(places) < AT_ONCE:
            time.sleep(0.05)
        keep_connection(ServiceConnection("lab", url, accounts.add("ada", Role.SUBMITTER, 1)))
        assert exit_code_of(["submit", str(tmp_path / "job.yaml"), "--server", "lab", "--no-wait"]) == 0
    assert "number 1 in line" in capsys.readouterr().err


def test_few_jobs_are_resumed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a thread of those that answer pages, for up to half a minute."""
    make_run(tmp_path / "paused", recorded(FIRST_SESSION), finished=False)
    service, owner = WebService.over(tmp_path), Caller("owner", Role.OPERATOR)
    goes_on, began = threading.Event(), threading.Semaphore(0)

    def resumed(*_arguments: object) -> None:
        began.release()
        goes_on.wait(60)

    monkeypatch.setattr("vcdl.web.service.resume_in_a_process", resumed)
    with ThreadPoolExecutor(_RESUMES_AT_ONCE) as pool:
        coming = [pool.submit(service.resume, owner, "paused") for _ in range(_RESUMES_AT_ONCE)]
        for _ in coming:
            assert began.acquire(timeout=30)
        with pytest.raises(ServiceBusy):
            service.resume(owner, "paused")
        goes_on.set()
        assert {one.result() for one in coming} == {"paused continues"}
    assert service.resume(owner, "paused") == "paused continues"


@pytest.mark.server
@pytest.mark.slow
def test_the_health_check_fails_when_pages_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runs := tmp_path / "runs").mkdir()
    goes_on, hang = threading.Event(), threading.Semaphore(0)

    def page(*_arguments: object, **_options: object) -> None:
        hang.release()
        goes_on.wait(60)

    monkeypatch.setattr(JobCatalogue, "page", page)
    token = Accounts(runs).add("reader", Role.READER, 1)
    with answering(runs) as port, ThreadPoolExecutor(40) as pool:
        assert _asked(port, "/healthz", token, 20) == 200
        asked = [pool.submit(_asked, port, f"/?after={number}", token, 60) for number in range(40)]
        for _ in asked:
            assert hang.acquire(timeout=30)
        try:
            with pytest.raises(TimeoutError):
                _asked(port, "/healthz", token, 1)
        finally:
            goes_on.set()
        for one in asked:
            assert isinstance(one.exception(), urllib.error.HTTPError | HTTPException | OSError)
