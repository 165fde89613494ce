"""Answers that are given again within a second: to the same question, to whoever may ask it, and never after a deed."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run
from tests.web.asking import asking, csrf_of
from vcdl.journal.journal import Journal
from vcdl.run.kind import BOINC
from vcdl.web import recent

API = "/api/v1"


class _Watch:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> _Watch:
    watch = _Watch()
    monkeypatch.setattr(recent, "time", watch)
    return watch


@pytest.fixture
def client(tmp_path: Path, watch: _Watch) -> TestClient:
    make_run(tmp_path / "demo", recorded(FIRST_SESSION[:-1]), finished=False, host=BOINC)
    return asking(tmp_path)


def _something_happens(runs: Path) -> None:
    with closing(Journal.existing(runs / "demo" / "journal.db")) as journal:
        journal.append(FIRST_SESSION[-1][1])


def _last_event(client: TestClient, **headers: str) -> Any:
    return client.get(f"{API}/jobs/demo", headers=headers).json()["last_event"]


def test_an_answer_is_given_again_for_a_second(tmp_path: Path, client: TestClient, watch: _Watch) -> None:
    first = client.get(f"{API}/jobs/demo")
    _something_happens(tmp_path)
    again = client.get(f"{API}/jobs/demo")
    assert (again.content, again.headers.items()) == (first.content, first.headers.items())
    watch.now_s += 1
    assert _last_event(client) == first.json()["last_event"] + 1


def test_another_question_has_an_answer_of_its_own(client: TestClient) -> None:
    pages = [client.get(f"{API}/jobs/demo/events", params={"after": after, "limit": 1}).json() for after in (0, 1)]
    assert [page["next"] for page in pages] == [1, 2]


def test_nobody_gets_an_answer_that_they_may_not_ask_for(client: TestClient) -> None:
    assert client.get(f"{API}/jobs/demo").status_code == 200
    client.cookies.clear()
    assert client.get(f"{API}/jobs/demo").status_code == 401


def test_after_a_deed_all_is_asked_anew(tmp_path: Path, client: TestClient) -> None:
    before = _last_event(client)
    csrf = csrf_of(client.get("/jobs/demo").text)
    _something_happens(tmp_path)
    assert _last_event(client) == before
    assert client.post(f"{API}/jobs/demo/stop", headers={"X-CSRF-Token": csrf}).status_code == 202
    assert _last_event(client) == before + 1


def test_a_refusal_is_not_kept(tmp_path: Path, client: TestClient) -> None:
    assert client.get(f"{API}/jobs/late").status_code == 404
    make_run(tmp_path / "late")
    assert client.get(f"{API}/jobs/late").status_code == 200


def test_only_so_many_answers_are_kept(tmp_path: Path, client: TestClient) -> None:
    before = _last_event(client)
    for limit in range(1, 65):
        client.get(f"{API}/jobs", params={"limit": limit})
    _something_happens(tmp_path)
    assert _last_event(client) == before + 1


def test_a_large_answer_is_not_kept(tmp_path: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "_MOST_BYTES", 10)
    before = _last_event(client)
    _something_happens(tmp_path)
    assert _last_event(client) == before + 1
