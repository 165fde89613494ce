"""What the watchman tells of jobs: each cause once, also across a restart, and again after it was gone."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.recorded_run import BEGAN_S, FIRST_SESSION, WHOLE_RUN, recorded
from tests.run_folders import DEMO, make_run
from vcdl.job import save_job
from vcdl.journal.events import RolledBack
from vcdl.report.alerts import AlertChannel
from vcdl.run.folder import RunLock
from vcdl.run.kind import BOINC
from vcdl.web.catalogue import JobCatalogue
from vcdl.web.watchman import Watchman

pytestmark = [pytest.mark.process, pytest.mark.server]


class Told:
    """A watchman whose alerts are lines of a file; each look is one of a new service."""

    def __init__(self, folder: Path) -> None:
        self.runs, self._file = folder / "runs", folder / "told"
        self.runs.mkdir()
        self._file.touch()
        program = folder / "tell"
        program.write_text(f'#!/bin/sh\necho "$1" >>{self._file}\n')
        program.chmod(0o755)
        self.channel = AlertChannel(command=(str(program),))

    def look(self, now_s: float | None = None) -> list[str]:
        """The lines that a look tells."""
        self._file.write_text("")
        assert Watchman(JobCatalogue(self.runs), self.channel).look(now_s) == []
        return self._file.read_text().splitlines()


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_the_end_of_a_job_is_told_once_and_old_ones_not(told: Told) -> None:
    make_run(told.runs / "old")
    folder = make_run(told.runs / "new", recorded(FIRST_SESSION), finished=False)
    assert told.look() == []
    make_run(folder.path, WHOLE_RUN[len(FIRST_SESSION) :])
    assert told.look() == ["job new: done: epoch 2 of 2, accuracy 0.8000"]
    assert told.look() == []


def test_a_job_that_nobody_runs_or_that_stands_still_has_stalled(told: Told) -> None:
    waiting = make_run(told.runs / "demo", WHOLE_RUN[:12], finished=False, host=BOINC)
    (line,) = told.look()
    assert line.startswith("job demo: stalled: No host has worked on it since ")
    assert told.look() == []
    with RunLock(waiting):
        assert told.look(BEGAN_S + 60) == []
        (line,) = told.look(BEGAN_S + 7200)
        assert line.startswith("job demo: stalled: Nothing has happened since ")


def test_each_collapse_is_told_once(told: Told) -> None:
    make_run(told.runs / "demo", recorded(FIRST_SESSION), finished=False)
    assert [line.partition(" (")[0] for line in told.look()] == []
    for version in (3, 4):
        collapse = RolledBack(version + 1, 1, (version,), collapsed=version, measured=0.1, usual=0.8)
        make_run(told.runs / "demo", recorded([(30 + version, collapse)]), finished=False)
        (line,) = told.look()
        assert line.startswith(f"job demo: collapsed at version {version}: ")
        assert told.look() == []


def test_a_store_that_is_away_is_told(told: Told) -> None:
    folder = make_run(told.runs / "demo", recorded(FIRST_SESSION), finished=False)
    store = DEMO.store.model_copy(update={"url": "redis://127.0.0.1:1"})
    save_job(DEMO.model_copy(update={"store": store}), folder.job_file)
    (line,) = told.look()
    assert line.startswith("job demo: store away: ")


def test_what_cannot_be_told_is_tried_again(told: Told) -> None:
    folder = make_run(told.runs / "demo", recorded(FIRST_SESSION), finished=False)
    told.look()
    make_run(folder.path, WHOLE_RUN[len(FIRST_SESSION) :])
    broken = AlertChannel(command=("no-such-command",))
    (why,) = Watchman(JobCatalogue(told.runs), broken).look()
    assert "alerts > command failed" in why
    assert told.look() == ["job demo: done: epoch 2 of 2, accuracy 0.8000"]


def test_a_webhook_gets_json(tmp_path: Path) -> None:
    got: list[dict[str, str]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    channel = AlertChannel(webhook=f"http://127.0.0.1:{server.server_port}/x")
    assert channel.news({"job x: done": "well"}, ()) == (("job x: done",), [])
    assert got == [{"text": "job x: done: well"}]
    server.shutdown()
    assert "webhook failed" in AlertChannel(webhook="http://127.0.0.1:9/").news({"a": "b"}, ())[1][0]
