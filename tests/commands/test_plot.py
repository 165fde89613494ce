"""`vcdl plot` lays runs over each other."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.recorded_run import FIRST_SESSION, recorded
from tests.run_folders import make_run
from vcdl.commands.plot import command, plot
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
    with pytest.raises(RunFolderError, match="young has no epoch that is finished and measured yet"):
        plot([Path("young")])


def test_an_ending_that_is_no_picture_is_a_usage_error() -> None:
    result = CliRunner().invoke(command, ["a", "-o", "a.txt"])
    assert result.exit_code == 2
    assert "must end in one of .png, .svg, .pdf" in result.output
