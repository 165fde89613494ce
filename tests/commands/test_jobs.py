"""`vcdl jobs` for people and for programs."""

import json
from pathlib import Path

import pytest

from tests.job_events import applied, created
from tests.run_folders import DEMO, make_run
from vcdl.commands.jobs import jobs
from vcdl.errors import RunFolderError
from vcdl.job import save_job
from vcdl.journal.events import Recorded, RunStarted
from vcdl.run.kind import BOINC

EVENTS = [RunStarted(resumed=False), created("e1 s0"), applied("e1 s0", 1)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two open jobs and a finished one."""
    for name, share, finished in (("b", 3, False), ("a", 1, False), ("old", 1, True)):
        recorded = [Recorded(number, float(number), event) for number, event in enumerate(EVENTS, 1)]
        folder = make_run(tmp_path / "vcdl" / "runs" / name, recorded, finished=finished)
        folder.kind_file.write_text(BOINC.name)
        job = DEMO.model_copy(update={"boinc": DEMO.boinc.model_copy(update={"share": share})})
        save_job(job, folder.job_file)
    return tmp_path


def test_each_job_has_a_line_the_open_ones_first(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs(project)
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["job", "state", "epoch", "measure", "share", "hosts", "time", "left"]
    assert [row.split()[0] for row in rows] == ["a", "b", "old"]
    assert "1 (25%)" in rows[0]
    assert "3 (75%)" in rows[1]
    assert "%" not in rows[2]


def test_programs_get_the_same(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs(project, as_json=True)
    first, *_, last = json.loads(capsys.readouterr().out)
    assert (first["job"], first["state"], first["epoch"], first["part"]) == ("a", "waiting", 1, 0.25)
    assert (last["job"], last["state"], last["part"]) == ("old", "finished", None)


def test_where_nothing_was_run_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="vcdl submit"):
        jobs(tmp_path)
