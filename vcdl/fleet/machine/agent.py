"""VCDL's agent on an instance of a fleet: it sees to it that what was trained is uploaded before the machine goes.

    python3 agent.py --config /etc/vcdl/agent.json [--dry-run]

One file and the standard library only: cloud-init writes it, and the system's own Python (3.9 or newer) runs it, as root.

The cloud takes the machine (notice), or it shuts down for another reason: no new work, running subtasks finish now, all is uploaded
and reported. The agent does not end the machine then: an hour that AWS interrupts is free, and one that we end is not.
The fleet no longer wants the machine (drain, see vcdl/fleet/drain.py): no new work, running subtasks have their time; power off.
The machine has been of no use for too long, without its project or a BOINC client: power off, or it would cost for ever.

It keeps nothing but a number in a file: each pass compares what is wanted with what the BOINC client says. It may be killed anywhere.
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

FINISH_NOW = "vcdl_finish_now"
"""In the project's folder: every running subtask writes what it has and ends (docs/boinc-client.md)."""
DRAIN_MARK = "vcdl-drain"
AWS_METADATA = "http://169.254.169.254"
GCP_METADATA = "http://metadata.google.internal"

_LISTEN_EVERY_S = 5.0
_BREATH_S = 0.1
"""At least, should a service answer at once that was asked to wait."""
_TOKEN_TTL_S = 21_600
_STAYING_S, _LEAVING_S = 5.0, 0.5
"""Between two looks at the BOINC client."""
_POKE_EVERY_S = 30.0
_PROBE_EVERY_S = 60.0
_TIMEOUT_S = 10.0
_SAVE_EVERY_S = 30.0
_SET_UP_WITHIN_S = 1800.0
"""A machine whose project is there has so long to install what it needs."""
_AGAIN_S = 3.0
"""Between two demands of the same kind while leaving: to report, to try an upload again."""
_EMPTY_FOR_S = 5.0
"""A reply of the scheduler that is under way may still bring tasks."""
_GIVE_UP_S = {"aws": 100.0, "gcp": 15.0}
"""So long after a notice of 120 or 30 s what still runs will not be uploaded in time; to abort and report it takes up to 10 s."""
_LAST_CALL_S = 120.0
"""So long before its time is over a drained machine's subtasks finish now."""
_MOST_BYTES = 1_000_000
_log = logging.getLogger("vcdl-agent")


@dataclass(frozen=True)
class Config:
    """What cloud-init wrote down for this machine."""

    cloud: str
    """`aws` or `gcp`."""
    project_url: str
    unreachable_s: float
    """Of no use for so long, the machine is powered off."""
    drain_s: float
    """How long a drained machine is left running."""
    boinc_folder: str = "/var/lib/boinc"
    state_folder: str = "/var/lib/vcdl"
    boinccmd: tuple[str, ...] = ("boinccmd",)
    metadata_url: str = ""
    """Empty: the cloud's own."""

    @classmethod
    def read(cls, path: Path) -> Config:
        """Raises OSError, ValueError and TypeError."""
        config = cls(**json.loads(path.read_text(encoding="utf-8")))
        if config.cloud not in _GIVE_UP_S:
            raise ValueError(f"there is no cloud {config.cloud!r}")
        return config


@dataclass(frozen=True)
class Said:
    """What the cloud says of this machine."""

    notice: str = ""
    """Empty: it may stay."""
    drain_since_s: float | None = None
    """Unix time of the fleet's mark."""


class Aws:
    """EC2's metadata, version 2."""

    def __init__(self, url: str) -> None:
        self._url = url or AWS_METADATA
        self._token = ""

    def look(self, wait_s: float) -> Said:
        """Ask in `wait_s`. Raises OSError, HTTPException, ValueError."""
        time.sleep(wait_s)
        text = self._get("spot/instance-action")
        action = {} if text is None else json.loads(text)
        notice = "" if text is None else f"{action['action']} at {action.get('time', '?')}"
        # Asked for the mark only when there is no notice: an answer that fails must not hide one.
        return Said(notice) if notice else Said("", _drain_time(self._get(f"tags/instance/{DRAIN_MARK}")))

    def _get(self, path: str) -> str | None:
        for _ in range(2):
            if not self._token:
                ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
                self._token = _fetch(f"{self._url}/latest/api/token", ttl, "PUT")[0]
            try:
                return _fetch(f"{self._url}/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._token})[0]
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                if error.code != 401:
                    raise
                self._token = ""  # it has expired
        raise ValueError("the metadata service refuses its own new token")


class Gcp:
    """Compute Engine's metadata; a preemption is told the moment it is there, as there are but 30 s."""

    def __init__(self, url: str) -> None:
        self._url = url or GCP_METADATA
        self._etag = ""

    def look(self, wait_s: float) -> Said:
        """Ask, and wait at most `wait_s` for news. Raises OSError, HTTPException, ValueError."""
        wait = f"?wait_for_change=true&timeout_sec={max(1, round(wait_s))}&last_etag={self._etag}" if self._etag else ""
        preempted, self._etag = self._get(f"preempted{wait}", wait_s + _TIMEOUT_S)
        if preempted not in ("TRUE", "FALSE"):
            raise ValueError(f"instance/preempted says {preempted[:80]!r}")
        if preempted == "TRUE":
            return Said("preempted")
        try:
            return Said("", _drain_time(self._get(f"attributes/{DRAIN_MARK}", _TIMEOUT_S)[0]))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return Said()

    def _get(self, path: str, timeout_s: float) -> tuple[str, str]:
        headers = {"Metadata-Flavor": "Google"}
        return _fetch(f"{self._url}/computeMetadata/v1/instance/{path}", headers, timeout_s=timeout_s)


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Metadata is on the machine itself: never through a proxy."""


def _fetch(
    url: str, headers: dict[str, str], method: str = "GET", timeout_s: float = _TIMEOUT_S, opener: Any = _direct
) -> tuple[str, str]:
    """The body and its ETag."""
    with opener.open(urllib.request.Request(url, headers=headers, method=method), timeout=timeout_s) as reply:
        return reply.read(_MOST_BYTES).decode("utf-8", "replace").strip(), reply.headers.get("ETag", "")


def _drain_time(mark: str | None) -> float | None:
    try:
        return None if mark is None else float(mark)
    except ValueError:
        return time.time()  # a mark, whoever wrote it


class BoincError(Exception):
    """The BOINC client does not answer, or not as it should."""


@dataclass(frozen=True)
class Task:
    """A task of the BOINC client."""

    project: str
    name: str
    state: str
    """`downloading`, `downloaded`, `uploading`, `uploaded`, `aborted`, …"""
    schedule: str
    """`uninitialized`: it was never started."""
    ready: str
    """`yes`: it only waits to be reported."""

    @property
    def is_waiting(self) -> bool:
        return self.state in ("new", "downloading", "downloaded") and self.schedule == "uninitialized"

    @property
    def is_running(self) -> bool:
        return self.state == "downloaded" and self.schedule != "uninitialized"


class Boinc:
    """The BOINC client on this machine, through boinccmd in its folder, where the password is."""

    def __init__(self, command: tuple[str, ...], folder: Path) -> None:
        self._command, self._folder = command, folder

    def projects(self) -> dict[str, bool]:
        """The URL of each project, and whether it may ask for work."""
        rows = self._list("get_project_status")
        return {row["master URL"]: row["don't request more work"] != "yes" for row in rows}

    def tasks(self) -> list[Task]:
        """All that it has not yet reported."""
        rows = self._list("get_tasks")
        return [
            Task(row["project URL"], row["name"], row["state"], row["scheduler state"], row["ready to report"])
            for row in rows
        ]

    def tell(self, *arguments: str) -> None:
        """Such as `--network_available`."""
        self._run(*arguments)

    def update(self, projects: Iterable[str]) -> None:
        """Have it speak with them now: report, and ask for work."""
        for url in projects:
            self._run("--project", url, "update")

    def ask_to_finish(self) -> None:
        """Leave the file that running subtasks look for. Raises OSError."""
        for folder in self._folder.glob("projects/*/"):
            (folder / FINISH_NOW).touch()

    def let_go_on(self) -> None:
        """Remove it. Raises OSError."""
        for path in self._folder.glob(f"projects/*/{FINISH_NOW}"):
            path.unlink()

    def _list(self, what: str) -> list[defaultdict[str, str]]:
        blocks = re.split(r"^\d+\) -+$", self._run(f"--{what}"), flags=re.MULTILINE)[1:]
        return [defaultdict(str, re.findall(r"^ +([^:]+): (.*)$", block, re.MULTILINE)) for block in blocks]

    def _run(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [*self._command, *arguments], cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, text=True, errors="replace",
            )  # fmt: skip
        except FileNotFoundError:
            return ""  # not installed yet: no project, no task, nothing to lose
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BoincError(f"boinccmd: {error}") from None
        if done.returncode:
            raise BoincError(f"boinccmd {arguments[0]}: {done.stdout.strip()[-200:]}")
        return done.stdout


class NoUse:
    """How long the machine has been of no use, in seconds that it ran: kept over restarts of the agent and of the machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked_s = time.monotonic()
        try:
            self.seconds = float(max(0, int(path.read_text())))
        except (OSError, ValueError):
            self.seconds = 0.0
        self._saved_s = self.seconds

    def count(self, is_of_use: bool) -> None:
        """Whether it was of use since the last call. Raises OSError."""
        now_s = time.monotonic()
        self.seconds, self._looked_s = 0.0 if is_of_use else self.seconds + now_s - self._looked_s, now_s
        if self.seconds < self._saved_s or self.seconds >= self._saved_s + _SAVE_EVERY_S:
            growing = self._path.with_suffix(".new")
            growing.write_text(f"{self.seconds:.0f}\n")
            growing.replace(self._path)
            self._saved_s = self.seconds


class Log:
    """Says what is wrong when it begins, when it changes, and when it is over."""

    def __init__(self) -> None:
        self._wrong: dict[str, str] = {}

    def bad(self, subject: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._wrong.get(subject) != text:
            _log.warning("%s: %s", subject, text)
        self._wrong[subject] = text

    def good(self, subject: str) -> None:
        if self._wrong.pop(subject, ""):
            _log.info("%s: all right again", subject)


class Agent:
    """What one machine's agent knows, and its loop. Two threads listen to the cloud and look for the project; all else is done here."""

    def __init__(self, config: Config, dry_run: bool) -> None:
        self._config, self._dry_run, self._log = config, dry_run, Log()
        self._cloud: Aws | Gcp = Aws(config.metadata_url) if config.cloud == "aws" else Gcp(config.metadata_url)
        self._boinc = Boinc(config.boinccmd, Path(config.boinc_folder))
        self._no_use = NoUse(Path(config.state_folder) / "no_use_s")
        self._inbox: queue.SimpleQueue[Said | None] = queue.SimpleQueue()
        """None: SIGTERM. Its put may be called by a signal's handler, unlike that of others."""
        self._said = Said()
        self._has_heard = False
        """Whether the cloud has said anything yet: until then nothing is taken back that an earlier life of the agent did."""
        self._machine_stops = self._asked_for_power_off = self._is_over = False
        self._is_reachable: bool | None = None
        """Whether the project was there when last looked for."""
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
        for work in (self._listen, self._look_for_project):
            threading.Thread(target=work, daemon=True).start()
        _log.info("on %s, for %s", self._config.cloud, self._config.project_url)
        while not self._is_over:
            try:
                self._leave() if self._must_go or self._is_drained else self._stay()
                self._log.good("client")
            except (BoincError, OSError) as error:
                self._is_attached = False
                self._log.bad("client", error)
            self._end_when_of_no_use()
            self._hear(_LEAVING_S if self._must_go or self._is_drained else _STAYING_S)

    # -- the threads

    def _listen(self) -> None:
        said: Said | None = None
        wait_s = 0.0
        while True:
            try:
                newest = self._cloud.look(wait_s)
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
                self._log.bad("metadata", error)
                time.sleep(_LISTEN_EVERY_S)
                continue
            self._log.good("metadata")
            wait_s = _LISTEN_EVERY_S
            time.sleep(_BREATH_S)
            if newest != said:
                said = newest
                self._inbox.put(said)

    def _look_for_project(self) -> None:
        opener = urllib.request.build_opener()
        while True:
            try:
                page = _fetch(self._config.project_url, {}, opener=opener)[0]
                if "scheduler" not in page:  # a project's page names it; the page of a lapsed domain does not
                    raise ValueError("what answers there is no BOINC project")
                self._is_reachable = True
                self._log.good("project")
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._is_reachable = False
                self._log.bad("project", error)
            time.sleep(min(_PROBE_EVERY_S, self._config.unreachable_s / 4))

    # -- the loop

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
            self._machine_stops = _systemctl("is-system-running") == "stopping"
            self._is_over = not self._machine_stops or self._asked_for_power_off
            _log.info("the machine shuts down" if self._machine_stops else "asked to end")
            return
        mark = said.drain_since_s if said.drain_since_s is not None else self._said.drain_since_s  # a mark is for good
        self._said, self._has_heard = Said(said.notice, mark), True
        _log.info("notice: %s; drain: %s", said.notice or "none", "no" if mark is None else f"since {mark:.0f}")

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
            _log.info("no more work is taken")
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
        gives_up = time.monotonic() >= self._could_stay_s + _GIVE_UP_S[self._config.cloud]
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
            _log.info("all is reported, after %.1f s", now_s - self._since_s)
        elif now_s >= self._empty_since_s + _EMPTY_FOR_S:
            if self._machine_stops:
                self._is_over = True
            elif self._is_drained and not self._said.notice:
                self._power_off("drained")

    def _end_when_of_no_use(self) -> None:
        if self._is_reachable is not None:
            try:
                self._no_use.count(self._is_reachable and self._is_attached)
                self._log.good("state")
            except OSError as error:
                self._log.bad("state", error)
        if self._machine_stops and self._is_reachable is False:
            self._is_over = True  # nothing can be uploaded
            return
        limit_s = self._config.unreachable_s
        if self._is_reachable:  # the set-up may be under way
            limit_s = max(limit_s, _SET_UP_WITHIN_S)
        if self._no_use.seconds >= limit_s and not self._said.notice:
            self._power_off(
                f"of no use for {self._no_use.seconds:.0f} s: no project, or no BOINC client attached to it"
            )

    def _power_off(self, why: str) -> None:
        if self._is_due("power off", _POKE_EVERY_S):
            _log.warning("%s: the machine is powered off%s", why, " (not really: --dry-run)" if self._dry_run else "")
            if not self._dry_run:
                self._asked_for_power_off = True
                _systemctl("poweroff")

    def _is_due(self, what: str, every_s: float) -> bool:
        now_s = time.monotonic()
        if now_s < self._done_s.get(what, -every_s) + every_s:
            return False
        self._done_s[what] = now_s
        return True


def _systemctl(command: str) -> str:
    try:
        done = subprocess.run(["systemctl", command], stdout=subprocess.PIPE, timeout=_TIMEOUT_S, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.error("systemctl %s: %s", command, error)
        return ""
    return done.stdout.strip()


def _end_process(failure: threading.ExceptHookArgs) -> NoReturn:
    """A thread that died would leave a deaf agent: systemd starts a new one."""
    threading.__excepthook__(failure)
    os._exit(1)


def main() -> None:
    """Look after this machine."""
    parser = argparse.ArgumentParser(description="Looks after an instance of a VCDL fleet.")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--dry-run", action="store_true", help="never power the machine off, only say so")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    threading.excepthook = _end_process
    try:
        config = Config.read(options.config)
    except (OSError, ValueError, TypeError) as error:
        sys.exit(f"{options.config} cannot be read ({error}): it is written by cloud-init, see docs/fleet-machine.md")
    Agent(config, options.dry_run).run()


if __name__ == "__main__":
    main()
