"""The agent's two threads, which watch what is outside the machine: the cloud, and the project."""

from __future__ import annotations

import http.client
import time
import urllib.request
from collections.abc import Callable

from .fetch import fetch
from .log import Log
from .metadata import Aws, Gcp, Said

_LISTEN_EVERY_S = 5.0
_BREATH_S = 0.1
"""At least, should a service answer at once that was asked to wait."""
_PROBE_EVERY_S = 60.0


def listen(cloud: Aws | Gcp, tell: Callable[[Said], None], log: Log) -> None:
    """Ask the cloud for ever, and tell what is news."""
    said: Said | None = None
    wait_s = 0.0
    while True:
        try:
            newest = cloud.look(wait_s)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            log.bad("metadata", error)
            time.sleep(_LISTEN_EVERY_S)
            continue
        log.good("metadata")
        wait_s = _LISTEN_EVERY_S
        time.sleep(_BREATH_S)
        if newest != said:
            said = newest
            tell(said)


class Project:
    """Whether the project is there."""

    def __init__(self, url: str, every_s: float, log: Log) -> None:
        self._url, self._every_s, self._log = url, min(_PROBE_EVERY_S, every_s), log
        self.is_reachable: bool | None = None
        """When last looked for; None: it was not yet."""

    def look_for(self) -> None:
        """For ever, at least every `every_s`."""
        opener = urllib.request.build_opener()
        while True:
            try:
                page = fetch(self._url, {}, opener=opener)[0]
                if "scheduler" not in page:  # a project's page names it; the page of a lapsed domain does not
                    raise ValueError("what answers there is no BOINC project")
                self.is_reachable = True
                self._log.good("project")
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.is_reachable = False
                self._log.bad("project", error)
            time.sleep(self._every_s)
