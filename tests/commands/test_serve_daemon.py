"""`vcdl serve` as a daemon of a BOINC project."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.vcdl_process import environment


@pytest.mark.process
@pytest.mark.parametrize("options", [["--tokens-only"], []])
def test_a_daemon_ends_by_the_signal_of_bin_stop_which_bin_start_had_ignored(
    tmp_path: Path, options: list[str]
) -> None:
    """It outlived bin/stop. What somebody began by `nohup` continues when their terminal is closed."""
    process = subprocess.Popen(
        ["nohup", sys.executable, "-m", "vcdl", "serve", str(tmp_path), "--port", "0", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    try:
        assert any("/login" in line for line in process.stdout)
        process.send_signal(signal.SIGHUP)
        if options:
            process.wait(60)
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3)
    finally:
        process.kill()
        process.wait()
