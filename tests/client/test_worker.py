"""A worker that ends by an error of its own, while its parent still holds the pipe of its commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


def test_a_worker_that_cannot_import_keras_ends_with_an_exit_code_and_is_not_aborted(tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text("raise ImportError('a broken keras')")
    command = [sys.executable, "-m", "vcdl.client.worker"]
    broken = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=broken) as worker:
        assert worker.wait(timeout=60) == 1
        assert worker.stderr is not None
        assert worker.stderr.read().endswith("ImportError: a broken keras\n")
