"""The pages for volunteers come with install and go with uninstall; what somebody has written there stays."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.run_folders import make_run
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.project.jobs_page import JobsPage
from vcdl.boinc.project.pages import JOBS_FILE, JOBS_PAGE, find_titled_page, pages, pages_to_remove
from vcdl.journal.events import Recorded, RunStarted

SETTINGS = (
    b'<?php\ndefine("PROJECT", "REPLACE WITH PROJECT NAME");\n'
    b'define("COPYRIGHT_HOLDER", "REPLACE WITH COPYRIGHT HOLDER");\ndefine("X", 1);\n'
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("user", "project"):
        (tmp_path / "html" / name).mkdir(parents=True)
    (tmp_path / "html/project/project.inc").write_bytes(SETTINGS)
    return tmp_path


def install(project: Path, name: str = 'A "good" $project') -> None:
    for path, content in pages(project, name):
        path.write_bytes(content)


def test_they_come_and_go(project: Path) -> None:
    install(project)
    settings = project / "html/project/project.inc"
    for name in (b"PROJECT", b"COPYRIGHT_HOLDER"):
        assert b'define("' + name + b'", "A good project");' in settings.read_bytes()
    assert [path.name for path, _ in pages(project, "x")] == [JOBS_PAGE.name]  # the others are there
    title = find_titled_page(project)
    assert title is not None
    assert title[2] == SETTINGS
    settings.write_bytes(title[2])
    for path in pages_to_remove(project):
        path.unlink(missing_ok=True)
    assert [path for path in project.rglob("*") if path.is_file()] == [settings]
    assert find_titled_page(project) is None


def test_a_title_and_a_description_of_the_operators_own_stay(project: Path) -> None:
    settings, own = project / "html/project/project.inc", project / "html/project/project_description.php"
    settings.write_bytes(b'<?php define("PROJECT", "Mine");')
    own.write_text("mine")
    install(project)
    assert (settings.read_bytes(), own.read_text()) == (b'<?php define("PROJECT", "Mine");', "mine")
    assert own not in set(pages_to_remove(project))
    assert find_titled_page(project) is None


def test_a_project_without_pages_gets_none(tmp_path: Path) -> None:
    assert list(pages(tmp_path, "x")) == []


def test_the_page_is_given_the_jobs_that_are_there(project: Path) -> None:
    make_run(project / "vcdl/runs/demo", [Recorded(1, 1.0, RunStarted(resumed=False))], finished=False)
    boinc = cast(BoincProject, SimpleNamespace(path=project))
    JobsPage(boinc).write_when_due()
    assert not (project / JOBS_FILE).exists()
    install(project)
    JobsPage(boinc).write_when_due()
    figures = json.loads((project / JOBS_FILE).read_text())
    assert figures["runtimes"] == []
    (job,) = figures["jobs"]
    assert (job["job"], job["epoch"], job["hosts"]) == ("demo", 1, 0)
    assert (job["down_mb"], job["up_mb"]) == (0, 0)
    assert (project / JOBS_FILE).stat().st_mode & 0o044 == 0o044  # the web server reads it
