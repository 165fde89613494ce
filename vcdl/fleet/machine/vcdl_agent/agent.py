"""The agent's loop: compare what the cloud and the fleet want with what the BOINC client does, and act."""

from __future__ import annotations

import math
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .boinc import Boinc, BoincError, Task, systemctl
from .watches import CLOUDS, Clock, CloudWatch, Log, Signals, logger

_WORKING_S, _LEAVING_S = 5.0, 0.5
"""Time between two steps."""
_REPEAT_S = 30.0
"""Seconds before a request to the client, or powering off, is repeated while working, because each takes time."""
_REPEAT_LEAVING_S = 3.0
"""Seconds before a request is repeated while leaving, since little time is left then."""
_EMPTY_S = 5.0
"""Seconds for which the client must be without tasks: a scheduler's reply under way may bring more."""
_LAST_CALL_S = 120.0
"""Seconds before the end of its drain time at which a drained machine's subtasks finish early, so that uploads fit."""
_SAVE_S = 30.0
"""Seconds between two writes of the idle time, so that a reboot loses little of it."""


@dataclass(frozen=True)
class Config:
    """The agent's configuration, /etc/vcdl/agent.json."""

    cloud: str
    """`aws` or `gcp`."""
    project_url: str
    idle_s: float
    """Time without a running subtask after which the machine is powered off; the set-up is part of it."""
    max_life_s: float
    """Time after which the machine drains."""
    lease_s: float
    """The lease of a machine whose metadata show none."""
    drain_s: float
    """Time for which a drained machine may finish its subtasks."""
    boinc_folder: str = "/var/lib/boinc"
    state_folder: str = "/var/lib/vcdl"
    boinccmd: tuple[str, ...] = ("boinccmd",)
    metadata_url: str = ""
    """The address of the metadata; empty: the cloud's own."""

    @classmethod
    def parse(cls, values: Any) -> Config:
        """Check the values of agent.json. Raises ValueError and TypeError."""
        config = cls(**values)
        if config.cloud not in CLOUDS:
            raise ValueError(f"there is no cloud {config.cloud!r}")
        return config


class IdleTime:
    """Counts the time without a running subtask, in a file, so that it adds up over restarts of agent and machine."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._counted_s = clock.monotonic()
        try:
            self.seconds = float(max(0, int(path.read_text())))
        except (OSError, ValueError):
            self.seconds = 0.0
        self._saved_s = self.seconds

    def count(self, is_idle: bool) -> None:
        """Add the time since the last call, or start over at 0. Raises OSError."""
        now_s = self._clock.monotonic()
        self.seconds, self._counted_s = self.seconds + now_s - self._counted_s if is_idle else 0.0, now_s
        # Write a reset to 0 at once: a restart with the old sum could power off a machine that works.
        if self.seconds < self._saved_s or self.seconds >= self._saved_s + _SAVE_S:
            growing = self._path.with_suffix(".new")
            growing.write_text(f"{self.seconds:.0f}\n")
            growing.replace(self._path)
            self._saved_s = self.seconds


class Agent:
    """The agent of a machine. A thread watches the cloud; everything else happens in `step` and `receive`."""

    def __init__(self, config: Config, dry_run: bool, clock: Clock | None = None) -> None:
        self._config, self._dry_run, self._clock, self._log = config, dry_run, clock or Clock(), Log()
        self._cloud = CLOUDS[config.cloud](config.metadata_url)
        self._inbox: queue.SimpleQueue[Signals | None] = queue.SimpleQueue()
        """Signals of the watch; None: SIGTERM. A signal handler may call this kind of queue's put."""
        self.watch = CloudWatch(self._cloud, self._inbox.put, self._log).step
        """Looks at the cloud once; to be called again after the seconds that it returns."""
        self._boinc = Boinc(config.boinccmd, Path(config.boinc_folder))
        self._idle = IdleTime(Path(config.state_folder) / "idle_s", self._clock)
        self.is_over = False
        self._notice = ""
        self._born_s = _born_s(Path(config.state_folder) / "born_s", self._clock.now())
        self._lease_s = self._born_s + config.lease_s
        """Unix time until which the machine may work."""
        self._drain_since_s: float | None = None
        self._has_signals = False
        """Whether the cloud has answered: before that nothing is taken back that an earlier agent on this machine did.
        """
        self._machine_stops = self._powers_off = self._is_busy = False
        self._is_leaving: bool | None = None
        """Whether the client takes no more work; None: unknown, as after an earlier agent."""
        self._leaving_since_s = self._no_hurry_s = self._clock.monotonic()
        """When leaving began; when nothing demanded a quick end for the last time."""
        self._gives_up_s = math.inf
        """When running tasks of a machine that shuts down are aborted."""
        self._empty_since_s: float | None = None
        self._done_s: dict[str, float] = {}
        """The last time of each request that must not be repeated too often."""

    def run(self) -> None:
        """Run until SIGTERM; while the whole machine shuts down, until all results are reported."""
        signal.signal(signal.SIGTERM, lambda _number, _frame: self._inbox.put(None))
        threading.Thread(target=_repeat, args=(self.watch,), daemon=True).start()
        logger.info("on %s, for %s", self._config.cloud, self._config.project_url)
        while not self.is_over:
            self.receive(self.step())

    def step(self) -> float:
        """Act once; returns the seconds until the next time, unless something is received before."""
        self._drain_when_over()
        must_leave = bool(self._notice) or self._machine_stops
        leaves = must_leave or self._drain_since_s is not None
        try:
            self._leave(must_leave) if leaves else self._work()
            self._log.clear_problem("client")
        except (BoincError, OSError) as error:
            # A client that does not answer counts as idle, so that a broken one ends the machine.
            self._is_busy = False
            self._log.problem("client", error)
        self._power_off_when_idle()
        return _LEAVING_S if leaves else _WORKING_S

    def receive(self, wait_s: float) -> bool:
        """Apply what a watch or a signal handler has sent; False if nothing came within `wait_s`."""
        try:
            signals = self._inbox.get(timeout=wait_s)
        except queue.Empty:
            return False
        if signals is None:
            # systemd stops units in reverse order: the BOINC client and the network stay until the agent ends.
            self._machine_stops = systemctl("is-system-running") == "stopping"
            self._gives_up_s = self._clock.monotonic() + self._cloud.stops_s
            self.is_over = not self._machine_stops or self._powers_off
            logger.info("the machine shuts down" if self._machine_stops else "asked to end")
            return True
        self._has_signals, self._notice = True, signals.notice
        if signals.advice and self._drain_since_s is None:
            logger.info("the cloud recommends to leave")
            self._drain_since_s = self._clock.now()
        if signals.until is not None:
            # End the lease on a mark that is no time, too: somebody else wrote it.
            self._lease_s = float(signals.until) if signals.until.isdecimal() else self._clock.now()
        logger.info("notice: %s; lease: until %.0f", self._notice or "none", self._lease_s)
        return True

    def _drain_when_over(self) -> None:
        """Drain once the lease or the machine's time is over; never taken back."""
        over_s = min(self._lease_s, self._born_s + self._config.max_life_s)
        if self._clock.now() >= over_s:
            if self._drain_since_s is None:
                logger.info("the lease or the life of this machine is over since %.0f", over_s)
            self._drain_since_s = min(over_s, self._drain_since_s or over_s)

    def _work(self) -> None:
        projects = self._boinc.projects()
        self._no_hurry_s = self._clock.monotonic()
        # Wait for the cloud's answer: an earlier agent may have been leaving for a notice that still holds.
        if self._is_leaving is not False and self._has_signals:
            self._boinc.resume_tasks()
            for url, may_fetch in projects.items():
                if not may_fetch:
                    self._boinc.command("--project", url, "allowmorework")
            self._is_leaving = False
        tasks = self._boinc.tasks()
        self._is_busy = any(task.is_running for task in tasks)
        self._hasten_uploads(tasks, _REPEAT_S)
        if not any(task.is_waiting for task in tasks) and self._is_due("update", _REPEAT_S):
            self._boinc.update(
                projects
            )  # after an empty reply the client itself would wait for minutes, then for hours

    def _leave(self, must_leave: bool) -> None:
        """Stop taking work and have what there is reported; may be repeated at any time."""
        now_s = self._clock.monotonic()
        if not self._is_leaving:
            self._is_leaving, self._leaving_since_s, self._empty_since_s = True, now_s, None
            logger.info("no more work is taken")
        if not must_leave:
            self._no_hurry_s = now_s
        if must_leave or self._is_last_call():
            self._boinc.finish_tasks()  # first, as it needs no answer from the client
        projects = self._boinc.projects()
        for url, may_fetch in projects.items():
            if may_fetch:
                self._boinc.command("--project", url, "nomorework")
        tasks = self._boinc.tasks()
        self._is_busy = any(task.is_running for task in tasks)
        gives_up = now_s >= min(self._no_hurry_s + self._cloud.give_up_s, self._gives_up_s) or self._drained_s() >= 0
        for task in tasks:
            # Abort waiting tasks, which would start as others end: so other machines get them now and not after their
            # deadline.
            if task.is_waiting or (gives_up and task.is_running):
                self._boinc.command("--task", task.project, task.name, "abort")
        # Retry uploads, because BOINC's client lets failed ones wait for minutes.
        self._hasten_uploads(tasks, _REPEAT_LEAVING_S)
        if any(task.ready == "yes" for task in tasks) and self._is_due("update", _REPEAT_LEAVING_S):
            self._boinc.update(projects)
        self._end_when_empty(not tasks)

    def _hasten_uploads(self, tasks: list[Task], every_s: float) -> None:
        if any(task.state == "uploading" for task in tasks) and self._is_due("upload", every_s):
            self._boinc.command("--network_available")

    def _is_last_call(self) -> bool:
        """Return whether a drained machine's time is nearly over."""
        return self._drained_s() >= -min(_LAST_CALL_S, self._config.drain_s / 2)

    def _drained_s(self) -> float:
        """Return the seconds since the end of a drained machine's time."""
        return (
            -math.inf if self._drain_since_s is None else self._clock.now() - self._drain_since_s - self._config.drain_s
        )

    def _end_when_empty(self, is_empty: bool) -> None:
        now_s = self._clock.monotonic()
        if not is_empty:
            self._empty_since_s = None
        elif self._empty_since_s is None:
            self._empty_since_s = now_s
            logger.info("all is reported, after %.1f s", now_s - self._leaving_since_s)
        elif now_s >= self._empty_since_s + _EMPTY_S:
            if self._machine_stops:
                self.is_over = True
            elif self._drain_since_s is not None and not self._notice:
                self._power_off("drained")

    def _power_off_when_idle(self) -> None:
        try:
            self._idle.count(not self._is_busy)
            self._log.clear_problem("state")
        except OSError as error:
            self._log.problem("state", error)
        # Do not power off on notice: AWS does not charge an hour that it interrupts itself.
        if self._idle.seconds >= self._config.idle_s and not self._notice:
            self._power_off(f"no subtask for {self._idle.seconds:.0f} s")

    def _power_off(self, why: str) -> None:
        if self._is_due("power off", _REPEAT_S):
            logger.warning("%s: the machine is powered off%s", why, " (not really: --dry-run)" if self._dry_run else "")
            if not self._dry_run:
                self._powers_off = True
                systemctl("poweroff")

    def _is_due(self, what: str, every_s: float) -> bool:
        now_s = self._clock.monotonic()
        if now_s < self._done_s.get(what, -every_s) + every_s:
            return False
        self._done_s[what] = now_s
        return True


def _born_s(path: Path, now_s: float) -> float:
    """Return the Unix time of the machine's first boot, which the first agent writes down."""
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        with suppress(OSError):
            path.write_text(f"{now_s:.0f}\n")
        return now_s


def _repeat(watch: Callable[[], float]) -> None:
    while True:
        time.sleep(watch())
