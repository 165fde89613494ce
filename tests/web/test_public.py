"""A public service: a visitor sees the list of jobs and each job's page, and nothing else."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fastapi import FastAPI

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import DEMO, make_run
from tests.web.asking import asking
from vcdl.job import save_job
from vcdl.journal.events import EvaluatorDied, RunStarted, UpdateRefused, WorkunitFailed, WorkunitSent
from vcdl.run.kind import BOINC
from vcdl.web.request_rate import CALLERS, RequestRate
from vcdl.web.routes import router
from vcdl.web.sessions import COOKIE

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

HOSTILE = '<img src=x onerror="alert(1)">'
SECRET = "/home/ada/private"
HTML = {"accept": "text/html"}


def visiting(runs: Path) -> "TestClient":
    return asking(runs, logged_in=False, is_public=True)


def every_route(app: FastAPI) -> set[tuple[str, str]]:
    """Method and path of all that the service answers."""
    described = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    pages = {(method, route.path) for route in router.routes for method in route.methods}  # type: ignore[attr-defined]
    return described | pages | {("GET", "/api/v1/openapi.json"), ("GET", "/static/{name}")}


def test_a_visitor_gets_the_list_and_the_pages_of_jobs_and_no_other_route(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    client = visiting(tmp_path)
    routes = every_route(client.app)  # type: ignore[arg-type]
    assert len(routes) > 35
    answered = set()
    for method, path in sorted(routes):
        names = {"name": "style.css" if "static" in path else "demo", "file": "summary.json", "path": "model.json"}
        asked = re.sub(r"\{(\w+)(:path)?\}", lambda found, names=names: names.get(found[1], "stop"), path)  # type: ignore[misc]
        for verb in {method, "HEAD", "OPTIONS", "POST", "PUT", "DELETE"}:
            if client.request(verb, asked).status_code not in (303, 401):
                answered.add((verb, path))
    to_everybody = {(method, path) for method, path in answered if path in ("/login", "/healthz", "/static/{name}")}
    assert answered - to_everybody == {("GET", "/"), ("GET", "/jobs/{name}")}


@pytest.mark.parametrize("path", ["/jobs/odd%3F/stop", "/jobs/odd%23/stop",
                                  "/%3F/stop", "//jobs/odd%3F", "/jobs/odd%3F%2Fstop", "/jobs/../hosts"])  # fmt: skip
def test_no_name_of_a_job_leads_a_visitor_elsewhere(tmp_path: Path, path: str) -> None:
    for name in ("odd?", "odd#"):
        make_run(tmp_path / name)
    assert visiting(tmp_path).get(path).status_code in (303, 404), path
    assert visiting(tmp_path).get("/jobs/odd%3F").status_code == 200


def test_without_public_there_are_no_visitors(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    for path in ("/", "/jobs/demo"):
        assert asking(tmp_path, logged_in=False).get(path).status_code == 303
        assert "log in</a>" not in asking(tmp_path).get(path).text


def test_a_visitor_sees_no_name_of_a_host_no_path_and_no_button(tmp_path: Path) -> None:
    sent = "demo_e0002_s000_a0_v000002"
    events = [*FIRST_SESSION, (31, RunStarted(resumed=True)), (31, WorkunitSent(sent, "adas-laptop", 1)),
              (32, UpdateRefused(sent, "norm_too_large", f"in {SECRET}", 1, "adas-laptop")),
              (33, WorkunitSent("demo_e0002_s001_a0_v000002", "bobs-pc", 1)),
              (34, WorkunitFailed("demo_e0002_s001_a0_v000002", f"{SECRET} is full")),
              (35, EvaluatorDied(f"no {SECRET}"))]  # fmt: skip
    folder = make_run(tmp_path / "demo", recorded(events), finished=False, host=BOINC)
    data = DEMO.data.model_copy(update={"npz": Path(SECRET), "dataset": None})
    save_job(DEMO.model_copy(update={"data": data}), folder.job_file)
    page, known = visiting(tmp_path).get("/jobs/demo").text, asking(tmp_path).get("/jobs/demo").text
    for private in ("adas-laptop", "bobs-pc", "worker-1", SECRET, "work_generator", "bin/start", "Settings", "<form",
                    "<button", "/hosts", "/server", str(tmp_path), "data-live"):  # fmt: skip
        assert private not in page, private
        assert private in known or private == str(tmp_path), f"{private} is not asked for at all"
    assert re.findall(r'<th scope="row">(host \d)</th>', page) == ["host 1", "host 2", "host 3", "host 4"]
    assert re.search(r"No host has worked on it since [-\d :]+, [^.:]+ ago\.</p>", page)
    assert "epoch 1/2: accuracy 0.6000" in page


def test_a_visitor_who_asks_for_news_gets_the_page(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    for path in ("/", "/jobs/demo"):
        answer = visiting(tmp_path).get(path, headers={"accept": "text/event-stream"})
        assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_what_a_job_calls_itself_is_text_to_visitors_too(tmp_path: Path) -> None:
    odd = HOSTILE.replace("/", "")
    folder = make_run(tmp_path / odd, recorded(FIRST_SESSION), finished=False)
    names = DEMO.data.model_copy(update={"class_names": (HOSTILE, "b")})
    save_job(DEMO.model_copy(update={"data": names}), folder.job_file)
    client = visiting(tmp_path)
    (address,) = re.findall(r'<th scope="row"><a href="([^"]+)"', client.get("/").text)
    for path in ("/", address):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "<img" not in answer.text
        assert "&lt;img src=x" in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


def test_what_is_wrong_with_the_servers_files_is_told_to_nobody_outside(tmp_path: Path) -> None:
    make_run(tmp_path / "broken").job_file.write_text("name: [")
    client, owner = visiting(tmp_path), asking(tmp_path)
    assert str(tmp_path) not in client.get("/").text
    assert "unreadable" in client.get("/").text
    for headers in (HTML, {}):
        answer = client.get("/jobs/broken", headers=headers)
        assert answer.status_code == owner.get("/jobs/broken", headers=headers).status_code == 422
        assert "job.yaml" not in answer.text
        assert "cannot be shown now" in answer.text
    assert "job.yaml" in owner.get("/jobs/broken").text
    assert "there is no job" in client.get("/jobs/none", headers=HTML).text


def test_the_list_has_a_cursor_for_visitors_and_odd_ones_lead_nowhere(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    make_run(tmp_path / "later")
    client = visiting(tmp_path)
    assert re.findall(r'<tr id="job-(\w+)"', client.get("/?after=1.demo").text) == ["later"]
    assert client.get("/?state=all").status_code == client.get(f"/?after={'x' * 301}").status_code == 422


def test_a_token_that_is_wrong_is_no_visit_and_a_session_sees_all(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    client = visiting(tmp_path)
    assert client.get("/", headers={"authorization": "Bearer vcdl_x"}).status_code == 401
    assert client.get("/", headers={"cookie": f"{COOKIE}=owner.9999999999.x.{'0' * 64}"}).status_code == 200
    assert "log in</a>" in client.get("/").text
    code = client.app.state.service.code  # type: ignore[attr-defined]
    assert client.get("/login", params={"code": code}).status_code == 200
    assert "Settings" in client.get("/jobs/demo").text
    assert client.get("/hosts").status_code == 200


def test_an_address_that_asks_too_often_waits_and_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("vcdl.web.guard.time.monotonic", lambda: now_s)
    client = visiting(tmp_path)
    assert [client.get("/").status_code for _ in range(62)] == [200] * 60 + [429] * 2
    now_s += 1
    assert [client.get("/").status_code for _ in range(6)] == [200] * 5 + [429]
    code = client.app.state.service.code  # type: ignore[attr-defined]
    client.get("/login", params={"code": code})
    assert client.get("/").status_code == 200, "who has a session is not one of them"


def test_all_visitors_together_are_bounded_and_their_addresses_are_not_kept_for_ever() -> None:
    rate = RequestRate(2, 1)
    assert not any(rate.is_too_high(str(number)) for number in range(CALLERS + 50))
    assert len(rate._left) == CALLERS
    everybody = RequestRate(3, 1e-9)
    assert [everybody.is_too_high("") for _ in range(4)] == [False, False, False, True]
