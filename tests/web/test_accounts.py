"""Tokens: shown once, bound to a role, at an end when they say so, and noted in what they do."""

import re
from pathlib import Path

import pytest

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run, readable_files_with
from tests.web.asking import asking, csrf_of
from vcdl.cli import vcdl
from vcdl.run.kind import BOINC
from vcdl.web.accounts import Accounts
from vcdl.web.request_rate import RequestRate
from vcdl.web.service import WebService
from vcdl.web.sessions import FOLDER, Caller, Role


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_token_is_kept_as_a_hash_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["add", "ada", "--role", "submitter"], ["list"]):
        with vcdl.make_context("vcdl", ["token", *arguments, "--folder", str(tmp_path)]) as context:
            vcdl.invoke(context)
    token, _, row = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"vcdl_[0-9a-f]{8}_[\w-]{43}", token)
    assert row.split()[:3] == [token[5:13], "ada", "submitter"]
    secret = token[14:]
    assert all(secret.encode() not in path.read_bytes() for path in (tmp_path / FOLDER).iterdir())
    assert readable_files_with("ada", tmp_path / FOLDER) == []


def test_a_text_that_no_database_holds_is_no_token(tmp_path: Path) -> None:
    for odd in ("\ud800", "vcdl_\ud800_x", "vcdl_a_\ud800", "vcdl_\0_x"):
        assert Accounts(tmp_path).of_token(odd) is None
        assert Accounts(tmp_path).caller(odd) is None


def test_a_role_may_do_what_it_may(tmp_path: Path) -> None:
    run = make_run(tmp_path / "demo", recorded(FIRST_SESSION[:-1]), finished=False, host=BOINC)
    accounts, client = Accounts(tmp_path), asking(tmp_path, logged_in=False)
    for role in (Role.READER, Role.SUBMITTER, Role.OPERATOR):
        headers = bearer(accounts.add(role.name.lower(), role, 1))
        assert client.get("/api/v1/jobs/demo", headers=headers).status_code == 200
        assert client.get("/metrics", headers=headers).status_code == 200
        answer = client.post("/api/v1/jobs/demo/stop", headers=headers)
        assert answer.status_code == (202 if role is Role.OPERATOR else 403), answer.text
    assert run.stop_request.exists()
    assert [(one.caller, one.action, one.outcome[:14]) for one in accounts.actions(9)] == [
        ("operator", "stop", "done"),
        ("submitter", "stop", "submitter did "),
        ("reader", "stop", "reader may not"),
    ]


def test_a_token_that_is_revoked_or_over_opens_nothing_nor_do_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = Accounts(tmp_path)
    token, short = accounts.add("ada", Role.READER, 1), accounts.add("bob", Role.READER, 0.5)
    browser, program = asking(tmp_path, logged_in=False), asking(tmp_path, logged_in=False)
    assert browser.post("/login", data={"token": token}).status_code == 200
    assert "ada" in browser.get("/").text
    assert program.get("/api/v1/jobs", headers=bearer(short)).status_code == 200
    accounts.revoke(token[5:13])
    assert browser.get("/").status_code == 303
    assert program.get("/api/v1/jobs", headers=bearer(token)).status_code == 401
    now_s = accounts.tokens()[1].created_s
    monkeypatch.setattr("time.time", lambda: now_s + 43_201.0)
    assert program.get("/api/v1/jobs", headers=bearer(short)).status_code == 401


@pytest.mark.parametrize("path", ["/api/v1/jobs/demo/events/stream", "/jobs/demo"])
def test_a_stream_ends_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    make_run(tmp_path / "demo", recorded(FIRST_SESSION[:-1]), finished=False, host=BOINC)
    for name in ("live._VALID_FOR_S", "live._PING_S", "api._PING_S"):
        monkeypatch.setattr(f"vcdl.web.{name}", 0.1)
    accounts = Accounts(tmp_path)
    token, client = accounts.add("ada", Role.READER, 1), asking(tmp_path, logged_in=False)
    look_again = WebService.is_valid

    def revoked_meanwhile(service: WebService, caller: Caller) -> bool:
        accounts.revoke(token[5:13])  # the stream has begun
        return look_again(service, caller)

    monkeypatch.setattr(WebService, "is_valid", revoked_meanwhile)
    answer = client.get(path, headers={**bearer(token), "accept": "text/event-stream"})
    assert answer.status_code == 200, "it has begun, and ended"


def test_a_reader_of_pages_has_no_buttons_that_work(tmp_path: Path) -> None:
    make_run(tmp_path / "demo", recorded(FIRST_SESSION[:-1]), finished=False, host=BOINC)
    token, client = Accounts(tmp_path).add("ada", Role.READER, 1), asking(tmp_path, logged_in=False)
    client.post("/login", data={"token": token})
    page = client.get("/jobs/demo").text
    assert '<body class="">' in page
    assert client.post("/jobs/demo/stop", data={"csrf": csrf_of(page)}).status_code == 403


def test_who_asks_too_often_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    rate = RequestRate(300, 50)
    assert [rate.is_too_high("ada") for _ in range(301)] == [False] * 300 + [True]
    assert not rate.is_too_high("bob")
    now_s = 1.0
    assert [rate.is_too_high("ada") for _ in range(51)] == [False] * 50 + [True]
