"""The programs of docs/python.md and of the README, run as they are written, one after the other."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import blocks
from tests.end_to_end.vcdl_process import environment
from tests.places import DOCS, ROOT

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


@pytest.mark.nightly
@pytest.mark.process
def test_the_program_of_the_readme_trains_the_model_of_the_page(tmp_path: Path) -> None:
    (program,) = [block.code for block in blocks(ROOT / "README.md") if block.language == "python"]
    model, *_ = BLOCKS[0].code.partition("run = vcdl.train(")
    given = f"{model}x_val, y_val = x[:200], y[:200]\n"
    done = subprocess.run(
        [sys.executable, "-c", given + program.replace("shards=50", "shards=50, epochs=2")],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all epochs are done" in done.stdout
