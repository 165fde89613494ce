"""A machine with the agent on it: the real process, with a systemctl that only writes down what it was asked."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.fleet.machine.metadata import AwsMetadata, GcpMetadata

AGENT = Path(__file__).parents[3] / "vcdl" / "fleet" / "machine" / "vcdl_agent"
PATIENCE_S = 60.0
_SYSTEMCTL = """#!/bin/sh
echo "$*" >>"{folder}/systemctl.log"
[ "$1" = is-system-running ] && cat "{folder}/system_state"
exit 0
"""


class Machine:
    """An instance as its agent sees it; everything of it lies in one folder."""

    def __init__(
        self, folder: Path, metadata: AwsMetadata | GcpMetadata, project_url: str, *options: str, **settings: object
    ) -> None:
        self.folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        (folder / "bin").mkdir(parents=True)
        (folder / "state").mkdir()
        program = folder / "bin" / "systemctl"
        program.write_text(_SYSTEMCTL.format(folder=folder))
        program.chmod(0o755)
        self.system_state("running")
        config = {
            "cloud": metadata.cloud, "project_url": project_url, "unreachable_s": 3600, "drain_s": 900,
            "boinc_folder": str(folder), "state_folder": str(folder / "state"), "boinccmd": ["no-such-boinccmd"],
            "metadata_url": metadata.url, **settings,
        }  # fmt: skip
        self.config = folder / "agent.json"
        self.config.write_text(json.dumps(config))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._process is not None:
            self.kill()
        if kind is not None:
            print(f"--- the agent's log ---\n{self.log}")

    def start(self) -> None:
        """Start the agent, as systemd would."""
        assert self._process is None, "the agent is running"
        self._output = (self.folder / "agent.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-uB", "-m", AGENT.name, "--config", str(self.config), *self._options],
            cwd=AGENT.parent,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"},
        )

    def kill(self, number: int = signal.SIGKILL) -> int:
        """End the agent; its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()

    def terminate(self) -> None:
        """SIGTERM, without waiting for what comes of it."""
        assert self._process is not None
        self._process.terminate()

    def wait(self) -> int:
        assert self._process is not None
        assert self._output is not None
        status = self._process.wait(PATIENCE_S)
        self._process = None
        self._output.close()
        return status

    def system_state(self, state: str) -> None:
        """What `systemctl is-system-running` says."""
        (self.folder / "system_state").write_text(f"{state}\n")

    @property
    def is_powered_off(self) -> bool:
        log = self.folder / "systemctl.log"
        return log.exists() and "poweroff" in log.read_text().splitlines()

    @property
    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Look twenty times a second; fails when the agent has ended or time is up."""
        until_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert self._process is None or self._process.poll() is None, f"the agent ended before {what}:\n{self.log}"
            assert time.monotonic() < until_s, f"waited {PATIENCE_S:g} s in vain until {what}:\n{self.log}"
            time.sleep(0.05)

    def wait_for(self, words: str) -> None:
        """Until the agent has logged them."""
        self.wait_until(lambda: words in self.log, f"it says {words!r}")
