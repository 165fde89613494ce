"""Exceptions that nobody expected, in words."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vcdl.errors import ExitCode
from vcdl.run.failure import describe_error

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
    words = f"{cached} is cut short, as Python leaves it on a full disk: remove it"
    assert describe_error(failed.value) == (words, ExitCode.BAD_FOLDER)
