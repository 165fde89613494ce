"""What the cloud says of this machine, in each cloud's own words."""

from __future__ import annotations

import json
import time
import urllib.error
from dataclasses import dataclass

from .fetch import TIMEOUT_S, fetch

DRAIN_MARK = "vcdl-drain"
AWS_METADATA = "http://169.254.169.254"
GCP_METADATA = "http://metadata.google.internal"
_TOKEN_TTL_S = 21_600


@dataclass(frozen=True)
class Said:
    """What the cloud says of this machine."""

    notice: str = ""
    """Empty: it may stay."""
    drain_since_s: float | None = None
    """Unix time of the fleet's mark."""


class Aws:
    """EC2's metadata, version 2."""

    give_up_s = 100.0
    """So long after a notice of 120 s what still runs will not be uploaded in time; to abort and report it takes up to 10 s."""

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
                self._token = fetch(f"{self._url}/latest/api/token", ttl, "PUT")[0]
            try:
                return fetch(f"{self._url}/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._token})[0]
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                if error.code != 401:
                    raise
                self._token = ""  # it has expired
        raise ValueError("the metadata service refuses its own new token")


class Gcp:
    """Compute Engine's metadata; a preemption is told the moment it is there, as there are but 30 s."""

    give_up_s = 15.0
    """As for Aws, of a notice of 30 s."""

    def __init__(self, url: str) -> None:
        self._url = url or GCP_METADATA
        self._etag = ""

    def look(self, wait_s: float) -> Said:
        """Ask, and wait at most `wait_s` for news. Raises OSError, HTTPException, ValueError."""
        wait = f"?wait_for_change=true&timeout_sec={max(1, round(wait_s))}&last_etag={self._etag}" if self._etag else ""
        preempted, self._etag = self._get(f"preempted{wait}", wait_s + TIMEOUT_S)
        if preempted not in ("TRUE", "FALSE"):
            raise ValueError(f"instance/preempted says {preempted[:80]!r}")
        if preempted == "TRUE":
            return Said("preempted")
        try:
            return Said("", _drain_time(self._get(f"attributes/{DRAIN_MARK}", TIMEOUT_S)[0]))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return Said()

    def _get(self, path: str, timeout_s: float) -> tuple[str, str]:
        headers = {"Metadata-Flavor": "Google"}
        return fetch(f"{self._url}/computeMetadata/v1/instance/{path}", headers, timeout_s=timeout_s)


CLOUDS: dict[str, type[Aws | Gcp]] = {"aws": Aws, "gcp": Gcp}
"""By the name of Config.cloud."""


def _drain_time(mark: str | None) -> float | None:
    try:
        return None if mark is None else float(mark)
    except ValueError:
        return time.time()  # a mark, whoever wrote it
