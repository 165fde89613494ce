"""What every request must pass: the host, a session or a token, and a form of one's own session."""

from pathlib import Path

import pytest

from tests.run_folders import make_run
from tests.web.asking import ADDRESS, asking, csrf_of
from vcdl.web.accounts import Accounts
from vcdl.web.sessions import COOKIE, FOLDER, Role, Sessions

PRIVATE = ("/", "/jobs/demo", "/hosts", "/api/v1/jobs", "/api/v1/version", "/api/v1/openapi.json",
           "/api/v1/jobs/demo/events/stream", "/api/v1/jobs/demo/files/summary.json", "/metrics", "/x")  # fmt: skip


@pytest.mark.parametrize("path", PRIVATE)
def test_nobody_sees_anything_without_a_session(tmp_path: Path, path: str) -> None:
    make_run(tmp_path / "demo")
    client = asking(tmp_path, logged_in=False)
    for headers in ({}, {"cookie": f"{COOKIE}=owner.9999999999.x.{'0' * 64}"}):
        answer = client.get(path, headers=headers)
        assert answer.status_code in (303, 401)
        assert "demo" not in answer.text
    assert client.get(path, headers={"authorization": "Bearer vcdl_x"}).status_code == 401


def test_a_foreign_host_is_refused_and_a_named_one_is_not(tmp_path: Path) -> None:
    client = asking(tmp_path, hosts=["train.example.org"])
    for host, status in (("evil.example", 421), ("", 421), ("127.0.0.1.evil.example:8630", 421),
                         ("localhost:1234", 200), ("[::1]:99", 200), ("TRAIN.example.org", 200)):  # fmt: skip
        assert client.get("/healthz", headers={"host": host}).status_code == status, host


def test_every_answer_forbids_frames_scripts_and_sniffing(tmp_path: Path) -> None:
    client = asking(tmp_path)
    for path in ("/", "/api/v1/jobs", "/nothing", "/login", "/static/live.js"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert client.get("/").headers["cache-control"] == "no-store"


def test_a_form_of_another_site_does_nothing(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    client = asking(tmp_path)
    token = csrf_of(client.get("/jobs/demo").text)
    elsewhere = csrf_of(asking(tmp_path).get("/jobs/demo").text)
    assert elsewhere != token
    refused = [
        client.post("/jobs/demo/stop"),
        client.post("/jobs/demo/stop", data={"csrf": elsewhere}),
        client.post("/jobs/demo/stop", data={"csrf": token}, headers={"sec-fetch-site": "cross-site"}),
        client.post("/api/v1/jobs/demo/stop"),
        client.post("/api/v1/jobs/demo/stop", data={"csrf": token}),
        client.post("/api/v1/jobs/demo/stop", headers={"X-CSRF-Token": elsewhere}),
        client.post("/logout", data={"csrf": elsewhere}),
    ]
    assert [answer.status_code for answer in refused] == [403] * 7
    assert client.post("/jobs/demo/stop", data={"csrf": token}).status_code == 409  # finished, but it was asked


def test_a_session_outlives_the_service_and_not_its_key(tmp_path: Path) -> None:
    cookie = asking(tmp_path).cookies[COOKIE]
    again = asking(tmp_path, logged_in=False)
    assert again.get("/", headers={"cookie": f"{COOKIE}={cookie}"}).status_code == 200
    key = tmp_path / FOLDER / "session_key"
    assert key.stat().st_mode & 0o077 == 0
    assert key.parent.stat().st_mode & 0o077 == 0
    key.unlink()
    assert asking(tmp_path, logged_in=False).get("/", headers={"cookie": f"{COOKIE}={cookie}"}).status_code == 303


def test_a_cookie_cannot_be_altered_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions.of(tmp_path)
    cookie = sessions.begin("owner")
    assert sessions.subject(cookie) == "owner"
    assert sessions.subject(cookie.replace("owner", "other")) is None
    assert sessions.subject("") is None
    monkeypatch.setattr("time.time", lambda: 2e10)
    assert sessions.subject(cookie) is None


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(tmp_path: Path) -> None:
    client = asking(tmp_path)
    code = client.app.state.service.code  # type: ignore[attr-defined]
    given = client.get("/login", params={"code": code}).headers["set-cookie"]
    assert "HttpOnly" in given
    assert "SameSite=strict" in given


@pytest.mark.parametrize("then", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_logging_in_leads_nowhere_else(tmp_path: Path, then: str) -> None:
    client = asking(tmp_path)
    code = client.app.state.service.code  # type: ignore[attr-defined]
    assert 'url=/"' in client.get("/login", params={"code": code, "next": then}).text


def _reader(runs: Path) -> str:
    return Accounts(runs).add("ada", Role.READER, 1)


def test_guessing_ends_in_a_wait_and_shuts_no_right_token_out(tmp_path: Path) -> None:
    client, token = asking(tmp_path, logged_in=False), _reader(tmp_path)
    answers = [client.post("/login", data={"token": f"guess{number}"}).status_code for number in range(12)]
    assert answers == [401] * 10 + [429] * 2
    assert int(client.post("/login", data={"token": "x"}).headers["retry-after"]) > 0
    assert client.get("/api/v1/jobs", headers={"authorization": "Bearer vcdl_guess"}).status_code == 429
    assert client.get("/api/v1/jobs", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert client.post("/login", data={"token": token}).status_code == 200


def test_a_wrong_token_that_comes_again_and_again_is_not_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = asking(tmp_path, logged_in=False)
    wrong = {"authorization": "Bearer vcdl_wrong"}
    assert [client.get("/api/v1/jobs", headers=wrong).status_code for _ in range(11)] == [401] * 10 + [429]
    monkeypatch.setattr(Accounts, "of_token", lambda *_: pytest.fail("it was looked up"))
    assert client.get("/api/v1/jobs", headers=wrong).status_code == 429


OF_ANOTHER_SITE = (
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://[::1"},
    {"origin": "http://127.0.0.1:9999"},
)


@pytest.mark.parametrize("headers", OF_ANOTHER_SITE, ids=str)
def test_another_site_neither_logs_a_browser_in_nor_has_its_guesses_counted(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    client, token = asking(tmp_path, logged_in=False), _reader(tmp_path)
    for given in ("guess", token):
        for _ in range(20):
            answer = client.post("/login", data={"token": given}, headers=headers)
            assert (answer.status_code, answer.headers.get("set-cookie")) == (403, None)
            answer = client.get("/login", params={"code": given}, headers=headers)
            assert (answer.status_code, answer.headers.get("set-cookie")) == (401, None)
    assert client.post("/login", data={"token": "wrong"}).status_code == 401, "it is the first that counts"


def test_an_address_logs_the_owner_in_and_nobody_else(tmp_path: Path) -> None:
    """A link with a token would log the browser of another in, whose deeds would then be in its holder's name."""
    client = asking(tmp_path, logged_in=False)
    assert client.get("/login", params={"code": _reader(tmp_path)}).headers.get("set-cookie") is None
    code = client.app.state.service.code  # type: ignore[attr-defined]
    opened = client.get("/login", params={"code": code}, headers={"sec-fetch-site": "cross-site"})  # `serve --open`
    assert COOKIE in opened.headers["set-cookie"]


@pytest.mark.parametrize(
    "headers",
    [{}, {"sec-fetch-site": "same-origin", "origin": "x"}, {"sec-fetch-site": "none"}, {"origin": ADDRESS}],
    ids=str,
)
def test_a_form_of_the_service_itself_logs_in(tmp_path: Path, headers: dict[str, str]) -> None:
    client = asking(tmp_path, logged_in=False)
    assert client.post("/login", data={"token": _reader(tmp_path)}, headers=headers).status_code == 200


def test_a_huge_body_is_not_read(tmp_path: Path) -> None:
    client = asking(tmp_path, logged_in=False)
    assert client.post("/login", content=b"x" * (2 << 20)).status_code == 413
    pieces = (b"x" * 65536 for _ in range(64))  # which say no length
    assert client.post("/login", content=pieces).status_code == 400
