"""The programs of docs/python.md, run as they are written, one after the other."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import blocks
from tests.end_to_end.vcdl_process import environment
from tests.places import DOCS

BLOCKS = blocks(DOCS / "python.md")
PROGRAM = "\n".join(block.code for block in BLOCKS if block.language == "python")


def test_they_are_python() -> None:
    assert PROGRAM.count("vcdl.train(") == 2
    compile(PROGRAM, "docs/python.md", "exec")


@pytest.mark.process
@pytest.mark.nightly
def test_they_do_what_the_page_says(tmp_path: Path) -> None:
    (job,) = [block for block in BLOCKS if block.title == "job.yaml"]
    (tmp_path / "job.yaml").write_text(job.code)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all epochs are done") == 2
    assert "epoch 3 ended with version 24" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("set data > shards to at most 1800")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["first", "from_file"]
