"""Exceptions that nobody expected, in words."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import environment
from tests.places import EXAMPLES
from vcdl.errors import ExitCode
from vcdl.report.failure import describe_error

pytestmark = pytest.mark.process


def test_byte_code_that_a_full_disk_cut_short_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large.py").write_text("".join(f"def f{number}(): return {number}\n" for number in range(200)))
    importing = ["prlimit", "--fsize=1000", sys.executable, "-c", "import large"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(importing, cwd=tmp_path, env=environment, check=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EOFError) as failed:
        importlib.import_module("large")
    (cached,) = tmp_path.glob("__pycache__/*")
    words = f"{cached} is truncated, probably because the disk was full: remove it"
    assert describe_error(failed.value) == (words, ExitCode.BAD_FOLDER)


@pytest.mark.parametrize(("command", "backend"), [("check", "tensorflow"), ("check", "jax"), ("run", "tensorflow")])
@pytest.mark.keras
@pytest.mark.slow
def test_without_a_backend_the_extra_is_named(command: str, backend: str, tmp_path: Path) -> None:
    """`pip install vcdl` brings none; here the import system finds none, and Keras itself fails. No run is left."""
    program = (
        "import sys\nfrom vcdl.cli import main\n"
        "class Nothing:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name.partition('.')[0] == {backend!r}: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Nothing())\nmain(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, command, EXAMPLES / "digits.yaml"], cwd=tmp_path, capture_output=True,
        text=True, env={**environment(), "KERAS_BACKEND": backend},
    )  # fmt: skip
    assert done.returncode == ExitCode.BAD_MODEL
    assert done.stderr.startswith(
        f"vcdl: error: Keras has no backend: {backend} is not installed; `pip install 'vcdl[cpu]'`"
    )
    # An unfinished run would make the same command fail once the backend is installed.
    assert not [*tmp_path.glob("runs/*")]


def test_another_module_that_is_missing_is_a_bug_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert describe_error(ModuleNotFoundError("No module named 'x'", name="x"))[1] is ExitCode.BUG
