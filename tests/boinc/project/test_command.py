"""`vcdl project` on the command line, and what comes with an installed VCDL."""

import sys
from pathlib import Path

import pytest

from tests.boinc.project.made_project import MadeProject
from vcdl.boinc.grid.environment import read_environment
from vcdl.cli import exit_code_of
from vcdl.errors import ExitCode
from vcdl.files.shipped import shipped_folder

pytestmark = pytest.mark.boinc


def run(*arguments: str, project: Path) -> ExitCode | int:
    return exit_code_of(["project", arguments[0], "--project-dir", str(project), *arguments[1:]])


def test_install_dry_run_install_again_uninstall(made: MadeProject, capsys: pytest.CaptureFixture[str]) -> None:
    before = made.contents()
    assert run("install", "--dry-run", "--python", sys.executable, project=made.path) == ExitCode.OK
    assert "+            <cmd>vcdl_work_generator -d 3</cmd>" in capsys.readouterr().out
    assert made.contents() == before
    assert run("install", project=made.path) == ExitCode.OK
    assert "edited config.xml\ninstalled; now, in" in capsys.readouterr().out
    first = made.contents()
    assert run("install", project=made.path) == ExitCode.OK
    assert capsys.readouterr().out == "nothing to change: VCDL is installed and up to date\n"
    assert made.contents() == first
    assert run("uninstall", "--dry-run", project=made.path) == ExitCode.OK
    assert "restore config.xml" in capsys.readouterr().out
    assert run("uninstall", project=made.path) == ExitCode.OK
    assert made.contents() == before


def test_what_is_no_project_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("install", "uninstall"):
        assert run(command, project=tmp_path) == ExitCode.SERVICE
        assert "is no BOINC project" in capsys.readouterr().err


def test_a_store_url_that_is_wrong_is_refused_before_anything_is_done(
    made: MadeProject, capsys: pytest.CaptureFixture[str]
) -> None:
    before = made.contents()
    assert run("install", "--redis", "ftp://:hush@host", project=made.path) == ExitCode.SERVICE
    assert "hush" not in capsys.readouterr().err
    assert made.contents() == before


def test_the_password_of_the_store_need_not_be_an_argument(made: MadeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCDL_STORE_PASSWORD", "hush")
    assert run("install", "--redis", "redis://127.0.0.1", project=made.path) == ExitCode.OK
    monkeypatch.delenv("VCDL_STORE_PASSWORD")
    assert run("install", project=made.path) == ExitCode.OK
    assert read_environment(made.path)["VCDL_STORE_PASSWORD"] == "hush"
    assert run("install", "--redis", "", project=made.path) == ExitCode.OK
    assert read_environment(made.path).keys() == {"VCDL_PYTHON"}


@pytest.mark.parametrize(
    "name",
    [
        "boinc_project/config.xml",
        "boinc_project/bin/vcdl_validate",
        "templates/vcdl_in.xml",
        "wrappers/linux/vcdl_client",
    ],
)
def test_what_comes_with_vcdl_is_found(name: str) -> None:
    folder, _, rest = name.partition("/")
    assert (shipped_folder(folder) / rest).is_file()
