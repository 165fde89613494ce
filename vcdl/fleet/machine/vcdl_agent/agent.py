"""The agent's loop: what is wanted, what the BOINC client says, and what is to be done about it."""

from __future__ import annotations

import queue
import signal
import threading
import time
from pathlib import Path

from .boinc import Boinc, BoincError
from .config import Config
from .log import Log, logger
from .metadata import CLOUDS, Said
from .no_use import NoUse
from .systemctl import systemctl
from .watches import Project, listen

_STAYING_S, _LEAVING_S = 5.0, 0.5
"""Between two looks at the BOINC client."""
_POKE_EVERY_S = 30.0
_SET_UP_WITHIN_S = 1800.0
"""A machine whose project is there has so long to install what it needs."""
_AGAIN_S = 3.0
"""Between two demands of the same kind while leaving: to report, to try an upload again."""
_EMPTY_FOR_S = 5.0
"""A reply of the scheduler that is under way may still bring tasks."""
_LAST_CALL_S = 120.0
"""So long before its time is over a drained machine's subtasks finish now."""


class Agent:
    """What one machine's agent knows, and its loop. Two threads listen to the cloud and look for the project; all else is done here."""

    def __init__(self, config: Config, dry_run: bool) -> None:
        self._config, self._dry_run, self._log = config, dry_run, Log()
        self._cloud = CLOUDS[config.cloud](config.metadata_url)
        self._project = Project(config.project_url, config.unreachable_s / 4, self._log)
        self._boinc = Boinc(config.boinccmd, Path(config.boinc_folder))
        self._no_use = NoUse(Path(config.state_folder) / "no_use_s")
        self._inbox: queue.SimpleQueue[Said | None] = queue.SimpleQueue()
        """None: SIGTERM. Its put may be called by a signal's handler, unlike that of others."""
        self._said = Said()
        self._has_heard = False
        """Whether the cloud has said anything yet: until then nothing is taken back that an earlier life of the agent did."""
        self._machine_stops = self._asked_for_power_off = self._is_over = False
        self._is_attached = False
        self._is_held: bool | None = None
        """Whether the client was told to take no more work; None: perhaps, by an earlier life of the agent."""
        self._since_s = self._could_stay_s = time.monotonic()
        """When leaving began, and until when there was no hurry."""
        self._empty_since_s: float | None = None
        self._done_s: dict[str, float] = {}
        """When what may not be done too often was done last."""

    def run(self) -> None:
        """Until SIGTERM; when the whole machine shuts down, until all is reported."""
        signal.signal(signal.SIGTERM, lambda _number, _frame: self._inbox.put(None))
        threading.Thread(target=listen, args=(self._cloud, self._inbox.put, self._log), daemon=True).start()
        threading.Thread(target=self._project.look_for, daemon=True).start()
        logger.info("on %s, for %s", self._config.cloud, self._config.project_url)
        while not self._is_over:
            try:
                self._leave() if self._must_go or self._is_drained else self._stay()
                self._log.good("client")
            except (BoincError, OSError) as error:
                self._is_attached = False
                self._log.bad("client", error)
            self._end_when_of_no_use()
            self._hear(_LEAVING_S if self._must_go or self._is_drained else _STAYING_S)

    @property
    def _must_go(self) -> bool:
        return bool(self._said.notice) or self._machine_stops

    @property
    def _is_drained(self) -> bool:
        return self._said.drain_since_s is not None

    def _hear(self, wait_s: float) -> None:
        try:
            said = self._inbox.get(timeout=wait_s)
        except queue.Empty:
            return
        if said is None:
            # Units stop in the reverse of their order: the BOINC client and the network stay until the agent has ended.
            self._machine_stops = systemctl("is-system-running") == "stopping"
            self._is_over = not self._machine_stops or self._asked_for_power_off
            logger.info("the machine shuts down" if self._machine_stops else "asked to end")
            return
        mark = said.drain_since_s if said.drain_since_s is not None else self._said.drain_since_s  # a mark is for good
        self._said, self._has_heard = Said(said.notice, mark), True
        logger.info("notice: %s; drain: %s", said.notice or "none", "no" if mark is None else f"since {mark:.0f}")

    def _stay(self) -> None:
        projects = self._boinc.projects()
        self._is_attached = bool(projects)
        self._could_stay_s = time.monotonic()
        if self._is_held is not False and self._has_heard:
            self._boinc.let_go_on()
            for url, may_fetch in projects.items():
                if not may_fetch:
                    self._boinc.tell("--project", url, "allowmorework")
            self._is_held = False
        tasks = self._boinc.tasks()
        if any(task.state == "uploading" for task in tasks) and self._is_due("uploads", _POKE_EVERY_S):
            self._boinc.tell("--network_available")
        if not any(task.is_waiting for task in tasks) and self._is_due("update", _POKE_EVERY_S):
            self._boinc.update(projects)  # or an empty answer would keep the client from asking for minutes, then hours

    def _leave(self) -> None:
        """Hold what is held already, and see how far it is: safe to be done again at any time."""
        if not self._is_held:
            self._is_held, self._since_s, self._empty_since_s = True, time.monotonic(), None
            logger.info("no more work is taken")
        if not self._must_go:
            self._could_stay_s = time.monotonic()
        if self._must_go or self._is_last_call:
            self._boinc.ask_to_finish()  # first, as it needs nobody's help
        projects = self._boinc.projects()
        self._is_attached = bool(projects)
        for url, may_fetch in projects.items():
            if may_fetch:
                self._boinc.tell("--project", url, "nomorework")
        tasks = self._boinc.tasks()
        gives_up = time.monotonic() >= self._could_stay_s + self._cloud.give_up_s
        for task in tasks:
            # What waits would begin as others end. What is aborted and reported is another machine's at once, not after its deadline.
            if task.is_waiting or (gives_up and task.is_running):
                self._boinc.tell("--task", task.project, task.name, "abort")
        if any(task.state == "uploading" for task in tasks) and self._is_due("uploads", _AGAIN_S):
            self._boinc.tell("--network_available")
        if any(task.ready == "yes" for task in tasks) and self._is_due("update", _AGAIN_S):
            self._boinc.update(projects)
        self._end_when_empty(not tasks)

    @property
    def _is_last_call(self) -> bool:
        """Whether the time of a drained machine is nearly over."""
        since_s, drain_s = self._said.drain_since_s, self._config.drain_s
        return since_s is not None and time.time() >= since_s + max(drain_s - _LAST_CALL_S, drain_s / 2)

    def _end_when_empty(self, is_empty: bool) -> None:
        now_s = time.monotonic()
        if not is_empty:
            self._empty_since_s = None
        elif self._empty_since_s is None:
            self._empty_since_s = now_s
            logger.info("all is reported, after %.1f s", now_s - self._since_s)
        elif now_s >= self._empty_since_s + _EMPTY_FOR_S:
            if self._machine_stops:
                self._is_over = True
            elif self._is_drained and not self._said.notice:
                self._power_off("drained")

    def _end_when_of_no_use(self) -> None:
        if self._project.is_reachable is not None:
            try:
                self._no_use.count(self._project.is_reachable and self._is_attached)
                self._log.good("state")
            except OSError as error:
                self._log.bad("state", error)
        if self._machine_stops and self._project.is_reachable is False:
            self._is_over = True  # nothing can be uploaded
            return
        limit_s = self._config.unreachable_s
        if self._project.is_reachable:  # the set-up may be under way
            limit_s = max(limit_s, _SET_UP_WITHIN_S)
        if self._no_use.seconds >= limit_s and not self._said.notice:
            self._power_off(
                f"of no use for {self._no_use.seconds:.0f} s: no project, or no BOINC client attached to it"
            )

    def _power_off(self, why: str) -> None:
        if self._is_due("power off", _POKE_EVERY_S):
            logger.warning("%s: the machine is powered off%s", why, " (not really: --dry-run)" if self._dry_run else "")
            if not self._dry_run:
                self._asked_for_power_off = True
                systemctl("poweroff")

    def _is_due(self, what: str, every_s: float) -> bool:
        now_s = time.monotonic()
        if now_s < self._done_s.get(what, -every_s) + every_s:
            return False
        self._done_s[what] = now_s
        return True
