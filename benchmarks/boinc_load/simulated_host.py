"""A simulated host: fetches, downloads, waits for as long as a training, uploads, reports, as BOINC's client does.

Its update is the weights that it downloaded, with noise: of the right size and in the right form, and of no use.
"""

import gzip
import hashlib
import http.client
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import numpy as np

from benchmarks.boinc_load import protocol
from benchmarks.boinc_load.protocol import RemoteFile, Report, Task
from vcdl.codecs.choose import down_encoding, up_encoding
from vcdl.errors import GridError
from vcdl.run.run import Run
from vcdl.wire.layout import Vector
from vcdl.wire.workunit import UpdateHeader, WorkunitName

_HTTP_TIMEOUT_S = 120.0
_AFTER_ERROR_S = 10.0
_ASKS_AGAIN_S = 30.0
_WANTED_S = 1.0
"""Seconds of work that a host without any asks for: one task."""
_SMALL_BYTES = 8192
"""BOINC's clients ask how much of a larger upload is there before they send it."""
_KEPT_BASES = 4
_PARAMS = "params.h5"
_NOISE = np.float32(1e-3)


class Connections:
    """HTTP connections, one a thread and address; those that the server closed are made again."""

    def __init__(self) -> None:
        self._local = threading.local()

    def get(self, url: str) -> bytes:
        """Raises GridError, OSError, http.client.HTTPException."""
        return self._exchange("GET", url, None)

    def post(self, url: str, body: bytes) -> bytes:
        """Raises GridError, OSError, http.client.HTTPException."""
        return self._exchange("POST", url, body)

    def _exchange(self, method: str, url: str, body: bytes | None) -> bytes:
        parts = urlsplit(url)
        known: dict[str, http.client.HTTPConnection] = self._local.__dict__.setdefault("known", {})
        for is_second in (False, True):
            is_kept = parts.netloc in known
            connection = known.setdefault(
                parts.netloc, http.client.HTTPConnection(parts.netloc, timeout=_HTTP_TIMEOUT_S)
            )
            try:
                connection.request(method, parts.path, body)
                response = connection.getresponse()
                content = response.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                del known[parts.netloc]
                if is_second or not is_kept:  # a kept connection may have been closed meanwhile
                    raise
        if response.status != http.client.OK:
            raise GridError(f"{method} {parts.path}: {response.status} {response.reason}")
        return content


class Updates:
    """Plausible updates of a job, for all hosts; weights that several hosts train from are kept once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._down = down_encoding(run.transport, run.layout)
        self._up = up_encoding(run.transport, run.layout)
        self._trained_from: Counter[int] = Counter()
        """Tasks that are being trained, by the version of their weights."""
        self._bases: OrderedDict[int, Vector] = OrderedDict()
        self._lock = threading.Lock()
        self._noise = _NOISE * np.random.default_rng(1).standard_normal(run.layout.size, dtype=np.float32)
        for begin, end in run.layout.second_moments:
            self._noise[begin:end] = 0  # they are never negative
        self._folder = TemporaryDirectory(prefix="vcdl-bench-")

    def begin(self, task: Task, params: bytes) -> None:
        """Keep the weights that a task begins with."""
        version = WorkunitName.parse(task.workunit).base_version
        with self._lock:
            self._trained_from[version] += 1
            if self._trained_from[version] == 1:
                self._params(version).write_bytes(params)

    def make(self, task: Task, train_s: float) -> bytes:
        """The update of a task that was begun."""
        name = WorkunitName.parse(task.workunit)
        base = self._base(name.base_version)
        samples = self._run.prepared.shard_samples[name.shard]
        header = UpdateHeader(
            job=name.job,
            workunit=task.workunit,
            base_version=name.base_version,
            layout=self._run.layout.fingerprint,
            samples=samples,
            fraction=1.0,
            train_s=train_s,
            loss=1.0,
            codec=self._up.label,
        )
        path = Path(self._folder.name) / task.upload_name
        try:
            self._up.write_upload(path, base + self._noise, base, header.to_json())
            return path.read_bytes()
        finally:
            path.unlink(missing_ok=True)

    def end(self, task: Task) -> None:
        """Forget the weights of a task that was uploaded."""
        version = WorkunitName.parse(task.workunit).base_version
        with self._lock:
            self._trained_from[version] -= 1
            if self._trained_from[version] == 0:
                del self._trained_from[version]
                self._bases.pop(version, None)
                self._params(version).unlink()

    def close(self) -> None:
        self._folder.cleanup()

    def _params(self, version: int) -> Path:
        return Path(self._folder.name) / f"params_{version}"

    def _base(self, version: int) -> Vector:
        with self._lock:
            base = self._bases.get(version)
            if base is None:
                base, _ = self._down.read(self._params(version))
                self._bases[version] = base
                while len(self._bases) > _KEPT_BASES:
                    self._bases.popitem(last=False)
            return base


@dataclass
class Records:
    """What all hosts did; appends of several threads do not disturb each other."""

    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {stage: [] for stage in ("scheduler", "download", "upload", "without work")}
    )
    """By stage, for each time."""
    reported: list[str] = field(default_factory=list)
    """Workunits whose report the scheduler acknowledged."""
    errors: list[str] = field(default_factory=list)
    in_vain: list[str] = field(default_factory=list)
    """What the scheduler said each time that it had no work for a host that asked."""
    bytes_down: list[int] = field(default_factory=list)
    bytes_up: list[int] = field(default_factory=list)


@dataclass
class SimulatedHost:
    """One host with one core."""

    name: str
    authenticator: str
    scheduler_url: str
    train_s: Callable[[], float]
    connections: Connections
    updates: Updates
    records: Records
    is_ending: threading.Event
    """Once set, hosts report what they have and take no more work."""
    number: int = 0
    sequence: int = 0
    task: Task | None = None
    """The one that is being trained."""
    waiting: deque[Task] = field(default_factory=deque)
    begun_s: float = 0.0
    ready_s: float = 0.0
    reports: dict[str, tuple[Report, str]] = field(default_factory=dict)
    """By result, with its workunit."""
    sticky: set[str] = field(default_factory=set)
    idle_since_s: float | None = None

    @property
    def is_through(self) -> bool:
        """Whether nothing is left to bring home."""
        return self.is_ending.is_set() and self.task is None and not self.reports

    def step(self) -> float:
        """Do what is due; returns the seconds until something is due again. An error is recorded, and tried again."""
        try:
            return self._step()
        except (GridError, OSError, http.client.HTTPException) as error:
            self.records.errors.append(f"{type(error).__name__}: {error}")
            return _AFTER_ERROR_S

    def _step(self) -> float:
        if self.task is not None:
            if (left_s := self.ready_s - time.monotonic()) > 0:
                return left_s
            self._upload(self.task)
            self.task = None
        delay_s = self._ask()
        if self.is_ending.is_set():
            self.waiting.clear()
        elif self.waiting:
            self._begin(self.waiting[0])
            self.waiting.popleft()
        return delay_s if self.task is None else max(0.0, self.ready_s - time.monotonic())

    def _ask(self) -> float:
        """Report, and ask for work; returns the seconds until the next request without work."""
        wants_s = 0.0 if self.is_ending.is_set() or self.waiting else _WANTED_S
        body = protocol.request(
            self.authenticator, self.number, self.sequence, self.name, wants_s,
            [report for report, _ in self.reports.values()], [task.result for task in self.waiting],
            sorted(self.sticky),
        )  # fmt: skip
        begin_s = time.monotonic()
        reply = protocol.read_reply(self.connections.post(self.scheduler_url, body))
        self.records.seconds["scheduler"].append(time.monotonic() - begin_s)
        self.number, self.sequence = reply.host or self.number, self.sequence + 1
        for result in reply.acknowledged:
            _, workunit = self.reports.pop(result, (None, ""))
            if workunit:
                self.records.reported.append(workunit)
        held = {task.result for task in self.waiting}
        self.waiting.extend(task for task in reply.tasks if task.result not in held)
        if reply.aborted:
            self.waiting = deque(task for task in self.waiting if task.result not in reply.aborted)
        if self.waiting and self.idle_since_s is not None:
            self.records.seconds["without work"].append(time.monotonic() - self.idle_since_s)
            self.idle_since_s = None
        elif not self.waiting and wants_s:
            self.records.in_vain.append("; ".join(reply.messages))
            if self.idle_since_s is None:
                self.idle_since_s = time.monotonic()
        return max(reply.delay_s, min(reply.next_s or _ASKS_AGAIN_S, _ASKS_AGAIN_S))

    def _begin(self, task: Task) -> None:
        begin_s = time.monotonic()
        for file in task.inputs.values():
            if file.name not in self.sticky and file is not task.inputs[_PARAMS]:
                self._download(file)
                if file.is_sticky:
                    self.sticky.add(file.name)
        self.updates.begin(task, self._download(task.inputs[_PARAMS]))
        self.begun_s = time.monotonic()
        self.records.seconds["download"].append(self.begun_s - begin_s)
        self.task, self.ready_s = task, self.begun_s + self.train_s()

    def _download(self, file: RemoteFile) -> bytes:
        """Raises GridError for another content than the scheduler told."""
        content = self.connections.get(file.url)
        self.records.bytes_down.append(len(content))
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if digest != file.md5:
            with suppress(OSError):
                content = gzip.decompress(content)
                digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if digest != file.md5:
            raise GridError(f"{file.name} has another MD5 than the scheduler told")
        return content

    def _upload(self, task: Task) -> None:
        trained_s = self.ready_s - self.begun_s
        content = self.updates.make(task, trained_s)
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        begin_s = time.monotonic()
        if len(content) >= _SMALL_BYTES:
            protocol.check_upload_reply(self.connections.post(task.upload_url, protocol.size_question(task)))
        protocol.check_upload_reply(
            self.connections.post(task.upload_url, protocol.upload_header(task, len(content), md5) + content)
        )
        self.records.seconds["upload"].append(time.monotonic() - begin_s)
        self.records.bytes_up.append(len(content))
        self.updates.end(task)
        self.reports[task.result] = Report(task.result, trained_s), task.workunit
