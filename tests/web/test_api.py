"""The API against a folder of runs: what it says, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.recorded_run import FIRST_SESSION, WHOLE_RUN, recorded
from tests.run_folders import make_run
from tests.web.asking import asking, csrf_of
from vcdl.commands.status import status
from vcdl.run.folder import RunLock
from vcdl.run.kind import BOINC

API = "/api/v1"


def test_a_job_has_the_keys_of_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "demo")
    told = asking(tmp_path).get(f"{API}/jobs/demo").json()
    assert (
        told.pop("feed")[0]["words"] == "shard 1 of epoch 1, attempt 1, on worker-2: lost, the worker died (signal 9)"
    )
    assert told.pop("figures")["staleness"] == "0.5 on average, 2 at most"
    status(folder.path, as_json=True)
    assert told == {
        **{key: value for key, value in json.loads(capsys.readouterr().out).items() if key != "troubles"},
        "folder": "demo",
        "last_event": len(WHOLE_RUN),
    }


def test_events_come_in_pages_and_as_a_stream_that_resumes_at_a_row(tmp_path: Path) -> None:
    make_run(tmp_path / "demo")
    client = asking(tmp_path)
    first = client.get(f"{API}/jobs/demo/events", params={"limit": 20}).json()
    rest = client.get(f"{API}/jobs/demo/events", params={"after": first["next"]}).json()
    assert [one["id"] for one in first["events"] + rest["events"]] == list(range(1, len(WHOLE_RUN) + 1))
    assert first["events"][0]["kind"] == "run_started"
    stream = client.get(f"{API}/jobs/demo/events/stream", headers={"Last-Event-ID": str(len(WHOLE_RUN) - 1)})
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.text.startswith(f"id: {len(WHOLE_RUN)}\nevent: event\ndata: {{")
    assert stream.text.endswith("event: over\ndata: {}\n\n")


def test_a_job_is_stopped_and_released(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "demo", recorded(FIRST_SESSION[:-1]), finished=False, host=BOINC)
    client = asking(tmp_path)
    page = client.get("/jobs/demo").text
    assert "/jobs/demo/stop" in page
    answer = client.post("/jobs/demo/stop", data={"csrf": csrf_of(page)})
    assert answer.headers["location"] == "/jobs/demo?notice=stop"
    assert folder.stop_request.exists()
    answer = client.post(f"{API}/jobs/demo/resume", headers={"X-CSRF-Token": csrf_of(page)})
    assert (answer.status_code, answer.json()) == (202, {"message": "demo continues"})
    assert not folder.stop_request.exists()


def test_what_cannot_be_done_is_refused_in_words(tmp_path: Path) -> None:
    make_run(tmp_path / "over")
    busy = make_run(tmp_path / "busy", recorded(FIRST_SESSION[:-1]), finished=False)
    client = asking(tmp_path)
    headers = {"X-CSRF-Token": csrf_of(client.get("/jobs/over").text)}

    def refused(action: str) -> tuple[int, str]:
        answer = client.post(f"{API}/jobs/{action}", headers=headers)
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.status_code, answer.json()["detail"]

    assert refused("over/stop") == (409, "over is finished: there is nothing to stop")
    assert refused("over/resume") == (409, "over is finished: there is nothing left to do")
    assert refused("missing/stop") == (404, "there is no job 'missing' here: `vcdl jobs` lists them")
    with RunLock(busy):
        assert refused("busy/resume") == (409, "busy is already running")


def test_what_a_run_left_behind_can_be_fetched_and_nothing_else(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "demo")
    client = asking(tmp_path)
    assert client.get(f"{API}/jobs/demo/files/summary.json").json()["job"] == "demo"
    for name in ("journal.db", "job.yaml", "store_password", "..%2F..%2Fetc%2Fpasswd", "model.keras"):
        assert client.get(f"{API}/jobs/demo/files/{name}").status_code == 404, name
    assert folder.job_file.is_file()


def test_a_damaged_journal_is_told_and_no_bug(tmp_path: Path) -> None:
    make_run(tmp_path / "demo").journal_file.write_bytes(b"no journal" * 1000)
    client = asking(tmp_path)
    assert client.get(f"{API}/jobs/demo").status_code == 503
    page = client.get("/jobs/demo", headers={"accept": "text/html"})
    assert (page.status_code, "is damaged, or is no journal" in page.text) == (503, True)
