"""The agent's watch on the cloud's metadata service."""

from __future__ import annotations

import http.client
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger("vcdl-agent")

LEASE_MARK = "vcdl-until"
AWS_METADATA = "http://169.254.169.254"
GCP_METADATA = "http://metadata.google.internal"
_POLL_S = 5.0
"""Time between two questions to AWS, and the time for which Compute Engine may hold back an answer."""
_TIMEOUT_S = 10.0
_MAX_BYTES = 1_000_000
_TOKEN_TTL_S = 21_600
"""Seconds for which a token of AWS's metadata service is valid: its maximum, six hours."""
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Metadata is on the machine itself: never through a proxy."""


@dataclass(frozen=True)
class Clock:
    """The machine's time in seconds; tests pass their own."""

    now: Callable[[], float] = time.time
    """Unix time."""
    monotonic: Callable[[], float] = time.monotonic


class Log:
    """Logs a problem when it begins or changes, and once more when it is over."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}

    def problem(self, subject: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._problems.get(subject) != text:
            logger.warning("%s: %s", subject, text)
        self._problems[subject] = text

    def clear_problem(self, subject: str) -> None:
        if self._problems.pop(subject, ""):
            logger.info("%s: all right again", subject)


@dataclass(frozen=True)
class Signals:
    """The cloud's and the fleet's plans for this machine, from its metadata."""

    notice: str = ""
    """The cloud's announcement that it takes the machine; empty: none."""
    until: str | None = None
    """The fleet's lease: the Unix time until which this machine may work; None: none."""
    advice: bool = False
    """The cloud expects to take the machine soon: better leave now than on a notice."""


class Aws:
    """EC2's metadata service, version 2."""

    pause_s = _POLL_S
    give_up_s = 100.0
    """Seconds after a notice of 120 s at which running tasks are aborted. That takes up to 10 s: their upload would be
    late.
    """
    stops_s = 100.0
    """The same time after the beginning of a shutdown."""

    def __init__(self, url: str) -> None:
        self._url = url or AWS_METADATA
        self._token = ""

    def read(self) -> Signals:
        """Query notice, lease and advice. Raises OSError, HTTPException, ValueError, KeyError, TypeError."""
        if (text := self._get("spot/instance-action")) is not None:
            action = json.loads(text)
            return Signals(f"{action['action']} at {action.get('time', '?')}")
        # Read the lease only without a notice: an error there must not hide one.
        advice = self._get("events/recommendations/rebalance")
        return Signals("", self._get(f"tags/instance/{LEASE_MARK}"), advice is not None)

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
    """Compute Engine's metadata service; it holds its answer back until a notice comes."""

    pause_s = 0.1
    """Kept even so, in case the service answers at once."""
    give_up_s = 100.0
    """The same times as for Aws: the launch asks for a notice of 120 s."""
    stops_s = 15.0
    """The shutdown has 30 s; without that notice it begins at once."""

    def __init__(self, url: str) -> None:
        self._url = url or GCP_METADATA
        self._etag = ""

    def read(self) -> Signals:
        """Wait for a change, at most _POLL_S. Raises OSError, HTTPException, ValueError."""
        wait = f"?wait_for_change=true&timeout_sec={_POLL_S:.0f}&last_etag={self._etag}" if self._etag else ""
        preempted, self._etag = self._get(f"preempted{wait}")
        if preempted not in ("TRUE", "FALSE"):
            raise ValueError(f"instance/preempted says {preempted[:80]!r}")
        if preempted == "TRUE":
            return Signals("preempted")
        try:
            return Signals("", self._get(f"attributes/{LEASE_MARK}")[0])
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return Signals()

    def _get(self, path: str) -> tuple[str, str]:
        url = f"{self._url}/computeMetadata/v1/instance/{path}"
        return _fetch(url, {"Metadata-Flavor": "Google"}, timeout_s=_POLL_S + _TIMEOUT_S)


CLOUDS: dict[str, type[Aws | Gcp]] = {"aws": Aws, "gcp": Gcp}


class CloudWatch:
    """Passes on what the cloud signals, whenever it changes."""

    def __init__(self, cloud: Aws | Gcp, send: Callable[[Signals], None], log: Log) -> None:
        self._cloud, self._send, self._log = cloud, send, log
        self._last: Signals | None = None

    def step(self) -> float:
        """Read the metadata once; returns the seconds until the next time."""
        try:
            signals = self._cloud.read()
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            self._log.problem("metadata", error)
            return _POLL_S
        self._log.clear_problem("metadata")
        if signals != self._last:
            self._last = signals
            self._send(signals)
        return self._cloud.pause_s


def _fetch(url: str, headers: dict[str, str], method: str = "GET", timeout_s: float = _TIMEOUT_S) -> tuple[str, str]:
    """Return the body of a page and its ETag."""
    with _direct.open(urllib.request.Request(url, headers=headers, method=method), timeout=timeout_s) as reply:
        return reply.read(_MAX_BYTES).decode("utf-8", "replace").strip(), reply.headers.get("ETag", "")
