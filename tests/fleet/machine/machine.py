"""A machine with the agent on it: as a real process, or in this process under a virtual clock."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pytest

from tests.fleet.machine.metadata import AwsMetadata, GcpMetadata
from tests.places import ROOT
from vcdl.fleet.machine.vcdl_agent.agent import Agent, Config
from vcdl.fleet.machine.vcdl_agent.watches import Clock, logger

AGENT = ROOT / "vcdl" / "fleet" / "machine" / "vcdl_agent"
TIMEOUT_S = 60.0
_SYSTEMCTL = """#!/bin/sh
echo "$*" >>"{folder}/systemctl.log"
[ "$1" = is-system-running ] && cat "{folder}/system_state"
exit 0
"""


class MachineFolder:
    """An agent's machine in one folder: its configuration, and a systemctl that only writes down its calls."""

    def __init__(self, folder: Path, metadata: AwsMetadata | GcpMetadata, project_url: str, **settings: object) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        (folder / "state").mkdir()
        program = folder / "bin" / "systemctl"
        program.write_text(_SYSTEMCTL.format(folder=folder))
        program.chmod(0o755)
        self.system_state("running")
        config = {
            "cloud": metadata.cloud, "project_url": project_url, "idle_s": 3600, "drain_s": 900,
            "max_life_s": 86400, "lease_s": 7200,
            "boinc_folder": str(folder), "state_folder": str(folder / "state"), "boinccmd": ["no-such-boinccmd"],
            "metadata_url": metadata.url, **settings,
        }  # fmt: skip
        self.config = folder / "agent.json"
        self.config.write_text(json.dumps(config))
        self.finish_now = folder / "projects" / "example.org" / "vcdl_finish_now"
        self.finish_now.parent.mkdir(parents=True)

    @property
    def search_path(self) -> str:
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"

    def system_state(self, state: str) -> None:
        """Set the answer of `systemctl is-system-running`."""
        (self.folder / "system_state").write_text(f"{state}\n")

    @property
    def is_powered_off(self) -> bool:
        log = self.folder / "systemctl.log"
        return log.exists() and "poweroff" in log.read_text().splitlines()


class Machine(MachineFolder):
    """An instance whose agent is the real process."""

    _process: subprocess.Popen[bytes] | None = None
    _output: IO[bytes] | None = None

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
            [sys.executable, "-uB", "-m", AGENT.name, "--config", str(self.config)],
            cwd=AGENT.parent,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, "PATH": self.search_path},
        )

    def kill(self, number: int = signal.SIGKILL) -> int:
        """End the agent; returns its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        assert self._process is not None
        assert self._output is not None
        status = self._process.wait(TIMEOUT_S)
        self._process = None
        self._output.close()
        return status

    @property
    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    def wait_until(self, condition: Callable[[], object], what: str, within_s: float = TIMEOUT_S) -> None:
        """Wait for a condition; fails when the agent has ended or time is up."""
        until_s = time.monotonic() + within_s
        while not condition():
            assert self._process is None or self._process.poll() is None, f"the agent ended before {what}:\n{self.log}"
            assert time.monotonic() < until_s, f"waited {within_s:g} s in vain until {what}:\n{self.log}"
            time.sleep(0.05)

    def wait_for(self, words: str, within_s: float = TIMEOUT_S) -> None:
        """Wait until the agent has logged these words."""
        self.wait_until(lambda: words in self.log, f"it says {words!r}", within_s)


class VirtualMachine(MachineFolder):
    """An instance whose agent runs in this process under virtual time; the steps of its threads are taken in turn.

    The metadata service, boinccmd and systemctl are those of the real process.
    """

    BEGAN_S = 1_800_000_000.0
    """Unix time at which the machine starts."""

    def __init__(
        self,
        folder: Path,
        metadata: AwsMetadata | GcpMetadata,
        project_url: str,
        dry_run: bool = False,
        **settings: object,
    ) -> None:
        super().__init__(folder, metadata, project_url, **settings)
        metadata.holds_back = False
        self.elapsed_s = 0.0
        self._dry_run = dry_run
        self._output = io.StringIO()
        self._handler = logging.StreamHandler(self._output)
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        self._patch.setenv("PATH", self.search_path)
        logger.setLevel(logging.INFO)
        logger.addHandler(self._handler)
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        logger.removeHandler(self._handler)
        self._patch.undo()

    def start(self) -> None:
        """Start an agent that knows nothing of the one before, as after a kill."""
        clock = Clock(lambda: self.BEGAN_S + self.elapsed_s, lambda: self.elapsed_s)
        self.agent = Agent(Config.parse(json.loads(self.config.read_text())), self._dry_run, clock)
        self._due_s = dict.fromkeys((self.agent.watch, self.agent.step), self.elapsed_s)

    @property
    def log(self) -> str:
        return self._output.getvalue()

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        until_s = self.elapsed_s + seconds
        while not self.agent.is_over:
            act = min(self._due_s, key=lambda act: self._due_s[act])
            if self._due_s[act] > until_s:
                break
            self.elapsed_s = self._due_s[act]
            # A metadata service that holds nothing back would otherwise be asked ten times a second.
            self._due_s[act] = self.elapsed_s + max(act(), 0.5)
            while self.agent.receive(0.0):
                self._due_s[self.agent.step] = self.elapsed_s
        self.elapsed_s = until_s
