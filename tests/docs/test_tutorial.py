"""The commands of docs/tutorial.md, run as they are written; only the number of epochs is smaller.

Nightly: that each command line is understood is tested by test_command_lines, and what follows a kill by
tests/end_to_end.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.markdown import Block, blocks
from tests.end_to_end.vcdl_process import TIMEOUT_S, applied, environment
from tests.places import DOCS

pytestmark = pytest.mark.process

PAGE = DOCS / "tutorial.md"
EPOCHS = 20
"""Long enough for the kills to strike a run that continues: 240 subtasks."""


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_each_command_does_what_the_tutorial_says(tmp_path: Path) -> None:
    settings = {**environment(), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    written: list[str] = []
    with background(settings, tmp_path) as first_terminal:
        for block in blocks(PAGE):
            if block.title.endswith((".yaml", ".py")):
                (tmp_path / block.title).write_text(block.code.replace("epochs: 60", f"epochs: {EPOCHS}"))
            if block.title == "first terminal":
                first_terminal(block)
            elif block.language == "sh":
                said = shell(block.code, settings, tmp_path)
                while "pgrep" in block.code and " 0 lost" in said:  # the worker was between two shards
                    said = shell(block.code, settings, tmp_path)
                written.append(said)
            elif block.title.endswith(".py"):
                written.append(shell(f"python {block.title}", settings, tmp_path))
    check_and_describe, after_one, after_all, resumed, _, predicted, simulated = written
    assert "three_machines: job.yaml is in order" in check_and_describe
    assert re.search(r"download +about 45\.\d KiB", check_and_describe)
    assert re.search(r"upload +about 38\.\d KiB", check_and_describe)
    assert "1 lost" in after_one
    assert "three_machines: killed" in after_all
    assert "all epochs are done" in resumed
    summary = json.loads((tmp_path / "runs" / "three_machines" / "summary.json").read_text())
    assert summary["updates_applied"] == EPOCHS * 12
    assert "`summary.json` is 720" in PAGE.read_text().replace("runs/three_machines/", "")  # of 60 epochs
    answers, labels = (re.findall(r"\d", line) for line in predicted.splitlines()[-2:])
    assert sum(answer == label for answer, label in zip(answers, labels, strict=True)) >= 8
    assert "of virtual time" in simulated
    assert (tmp_path / "comparison.png").stat().st_size > 0


def shell(code: str, settings: dict[str, str], folder: Path) -> str:
    """What commands print; each must succeed."""
    done = subprocess.run(
        ["bash", "-euc", code], cwd=folder, env=settings, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def background(settings: dict[str, str], folder: Path) -> Iterator["FirstTerminal"]:
    terminal = FirstTerminal(settings, folder)
    try:
        yield terminal
    finally:
        terminal.close()


class FirstTerminal:
    """Where the tutorial's reader starts the run and leaves it alone."""

    def __init__(self, settings: dict[str, str], folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, block: Block) -> None:
        """Return when the first updates are through."""
        with (self._folder / "first_terminal.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-euc", f"exec {block.code}"], cwd=self._folder, env=self._settings, stdout=log, stderr=log
            )
        give_up_s = time.monotonic() + TIMEOUT_S
        while len(applied(self._folder / "runs" / "three_machines")) < 10:
            assert self._process.poll() is None, (self._folder / "first_terminal.log").read_text()
            assert time.monotonic() < give_up_s
            time.sleep(0.1)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
