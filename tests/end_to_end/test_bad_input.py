"""Bad input of every kind: a one-line error that says what to do, the documented exit code, and nothing
half-written.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import environment, vcdl
from vcdl.cli import exit_code_of

pytestmark = [pytest.mark.process, pytest.mark.keras]

GOOD = "name: bad\nmodel: {builtin: mlp}\ndata: {dataset: digits, shards: 2}\n"


def _error_line(errors: str) -> str:
    lines = [line for line in errors.splitlines() if line.strip()]
    assert "Traceback" not in errors
    assert len(lines) == 1, errors
    return lines[0]


Refused = Callable[[str, int], str]
"""`refused(job file, exit code)`: the one line on stderr, in a folder where nothing is left."""


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Refused:
    """`vcdl run` in this process, which has Keras already; the program itself is in the tests below."""

    def run(text: str, code: int) -> str:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "bad.yaml").write_text(text)
        import keras  # noqa: F401  what TensorFlow prints when it is loaded is no line of ours

        capfd.readouterr()
        assert exit_code_of(["run", "bad.yaml", "--out", "out"]) == code
        assert not (tmp_path / "out").exists()
        return _error_line(capfd.readouterr().err)

    return run


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (GOOD + "seed: soon\n", 3, "bad.yaml:4: seed: expected a whole number"),
        (GOOD.replace("shards: 2", "shards: fifty"), 3, 'data > shards: expected a whole number ≥ 1, got "fifty"'),
        (GOOD + "trianing: {}\n", 3, "training"),
        (GOOD.replace("dataset: digits", "npz: nowhere.npz"), 3, "nowhere.npz"),
        (GOOD.replace("builtin: mlp", "keras_json: nowhere.json"), 3, "nowhere.json"),
        (GOOD + "training: {optimizer: adma}\n", 3, "adam"),
        (GOOD + "training: {loss: mean_squared_errror}\n", 3, "loss"),
        (GOOD.replace("shards: 2", "shards: 100000"), 4, "shards"),
    ],
)
def test_a_wrong_job_is_refused_in_one_line(refused: Refused, text: str, code: int, message: str) -> None:
    assert message in refused(text, code)


# -- the program itself


@pytest.mark.skipif(
    os.geteuid() == 0 and not Path("/sys").is_mount(), reason="needs a read-only file system or no root"
)
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    out = Path("/sys/vcdl") if os.geteuid() == 0 else tmp_path / "read-only"
    if os.geteuid() != 0:
        out.mkdir(mode=0o500)
        out = out / "out"
    done = vcdl("run", tmp_path / "good.yaml", "--out", out)
    assert str(out) in _error_line(done.stderr)
    assert done.returncode == 6


@pytest.mark.nightly
def test_a_disk_that_is_full_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    # No file of the run may grow beyond 20 kB: what a full disk does, without one
    (tmp_path / "good.yaml").write_text(GOOD)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(
        [sys.executable, "-m", "vcdl", "run", "good.yaml", "--out", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**environment(), "PYTHONDONTWRITEBYTECODE": "1"},  # half of it would stay
        preexec_fn=limit,
        timeout=200,
    )
    assert "disk" in _error_line(done.stderr)
    assert done.returncode == 7
    assert not (tmp_path / "out").exists()
