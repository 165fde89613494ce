"""`vcdl plot` lays runs over each other."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run
from vcdl.commands.plot import command, plot, plot_movie
from vcdl.errors import RunFolderError

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_run_renews_its_own_picture(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(here / "runs" / "demo")
    plot([Path("runs/demo")])
    assert folder.plot_file.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == "plot runs/demo/curves.png\n"


def texts(path: Path) -> list[str]:
    """The texts in an SVG picture, which has each text as a comment beside its shapes."""
    return re.findall(r"<!-- (.*?) -->", path.read_text())


def test_a_run_without_a_measured_epoch_is_named(here: Path) -> None:
    make_run(here / "young", recorded(FIRST_SESSION[:5]), finished=False)
    with pytest.raises(RunFolderError, match="young has no epoch that is finished and evaluated yet"):
        plot([Path("young")])


def test_an_ending_that_is_no_picture_is_a_usage_error() -> None:
    result = CliRunner().invoke(command, ["a", "-o", "a.txt"])
    assert result.exit_code == 2
    assert "must end in one of .png, .svg, .pdf" in result.output


def test_a_movie_is_drawn_of_one_run_as_the_ending_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(here / "runs" / "demo")
    plot_movie(Path("runs/demo"), here / "demo.svg", title="A title")
    assert capsys.readouterr().out == "movie demo.svg\n"
    assert "A title: 2 subtasks on 2 hosts" in (here / "demo.svg").read_text()
    result = CliRunner().invoke(command, ["runs/demo", "--movie", "demo.gif"])
    assert (result.exit_code, result.output) == (0, "movie demo.gif\n")
    assert (here / "demo.gif").read_bytes().startswith(b"GIF89a")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a", "--movie", "a.mp4"], "a.mp4 must end in one of .svg, .gif"),
        (["a", "b", "--movie", "a.svg"], "--movie accepts one run"),
        (["a", "--movie", "a.svg", "-o", "b.svg"], "no --output"),
    ],
)
def test_what_a_movie_cannot_be_is_a_usage_error(words: list[str], told: str) -> None:
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 2
    assert told in result.output


def test_a_run_without_a_subtask_has_no_movie_and_leaves_no_file(here: Path) -> None:
    make_run(here / "young", recorded(FIRST_SESSION[:3]), finished=False)
    with pytest.raises(RunFolderError, match="no subtask was given out yet"):
        plot_movie(Path("young"), here / "young.svg")
    assert not (here / "young.svg").exists()
