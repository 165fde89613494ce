"""Each command reads a job file for the slots on which it trains."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import vcdl.job
from vcdl.cli import vcdl as command_line
from vcdl.errors import ExitCode, JobError
from vcdl.job import SMALL_FLEET


@pytest.mark.parametrize(
    ("words", "slots"),
    [
        (("run",), None),
        (("run", "--grid", "pool"), SMALL_FLEET),
        (("sweep", "--over", "seed=1,2"), None),
        (("simulate",), 20),
        (("simulate", "--clients", "3", "--slots", "4"), 12),
        (("submit", "--project-dir", "."), SMALL_FLEET),
        (("plan",), SMALL_FLEET),
        (("describe",), SMALL_FLEET),
    ],
)
def test_the_number_of_slots_is_that_of_the_command(
    words: tuple[str, ...], slots: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int | None] = []

    def loaded(path: Path, overrides: Any = (), slots: int | None = None) -> None:
        seen.append(slots)
        raise JobError("enough is seen")

    monkeypatch.setattr(vcdl.job, "load_job", loaded)
    (tmp_path / "job.yaml").write_text("name: a\nmodel: {builtin: mlp}\ndata: {dataset: digits}\n")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command_line, [words[0], "job.yaml", *words[1:]])
    assert seen == [slots], result.output
    assert isinstance(result.exception, JobError) or result.exit_code == ExitCode.BAD_JOB
