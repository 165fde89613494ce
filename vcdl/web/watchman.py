"""Watch the jobs of a service, and send alerts: done, failed, stalled, collapsed, store unavailable, host banned."""

import json
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

from vcdl.errors import StoreError, VcdlError
from vcdl.files.atomic import whole_file
from vcdl.report.alerts import AlertChannel
from vcdl.report.progress import rolled_back_words
from vcdl.run.reading import RunState
from vcdl.run.standing import JobRow
from vcdl.run.store_claim import requested_settings
from vcdl.stores.open import open_store
from vcdl.trust.kept_hosts import ShownTrust
from vcdl.web.catalogue import JobCatalogue
from vcdl.web.job_trouble import standstill
from vcdl.web.job_view import JobView
from vcdl.web.overview import banned_hosts
from vcdl.web.sessions import service_folder

_EVERY_S = 15.0
"""Seconds between two checks of all jobs: an alert may be this late."""
_STORES_EVERY = 4
"""A job's store is queried at every fourth check, so once a minute, because each query costs a connection."""
_log = logging.getLogger("vcdl.web")


class Watchman:
    """Checks all jobs every 15 s, in a thread, and sends an alert for each job that ends and each new problem.

    alerts.json in the service's folder contains the alerts that were sent and the jobs that were open at the last
    check. So a restart of the service repeats no alert, and notices jobs that ended meanwhile. An alert that could not
    be sent is sent again at the next check.
    """

    def __init__(self, catalogue: JobCatalogue, channel: AlertChannel) -> None:
        """Prepare the watchman; `begin` starts it.

        Args:
            catalogue: The jobs.
            channel: Sends the alerts.

        Raises:
            RunFolderError: The stored alerts cannot be read.
        """
        self._catalogue = catalogue
        self._channel = channel
        self._file = service_folder(catalogue.runs) / "alerts.json"
        self._looks = 0
        self._away: dict[str, str] = {}
        """Name of a job → why its store did not answer at the last query."""

    def begin(self) -> None:
        """Start the thread that checks the jobs until the process ends."""
        threading.Thread(target=self._look_for_ever, name="vcdl-watchman", daemon=True).start()

    def look(self, now_s: float | None = None) -> list[str]:
        """Check all jobs once, send the new alerts, and store which were sent.

        Args:
            now_s: The current Unix time, or None to read the clock.

        Returns:
            For each alert that could not be sent, the reason.

        Raises:
            RunFolderError: The jobs cannot be read, or the alerts cannot be stored.
        """
        now_s = time.time() if now_s is None else now_s
        were_open, sent = self._read()
        are_open = {name for is_over, name in self._catalogue.list_jobs() if not is_over}
        # A job's end shows only as a difference from the last check. Stalls and bans are states, which each check finds
        # anew.
        ends = [(name, what, words) for name in sorted(were_open - are_open) for what, words in self._end(name)]
        causes = {f"job {name}: {what}": words for name, what, words in ends}
        for name in sorted(are_open):
            with suppress(VcdlError), self._catalogue.view(name).current() as view:
                causes |= {f"job {name}: {what}": words for what, words in self._causes(view, now_s)}
        causes |= self._bans(sent)
        reported, failed = self._channel.news(causes, sent)
        # Store a job whose end could not be reported as still open, so that the next check finds its end again.
        unreported = {name for name, what, _ in ends if f"job {name}: {what}" not in reported}
        if (are_open | unreported, {*reported}) != (were_open, {*sent}) or not self._file.exists():
            state = {"open": sorted(are_open | unreported), "reported": sorted(reported)}
            with whole_file(self._file) as temporary:
                temporary.write_text(json.dumps(state), encoding="utf-8")
        self._looks += 1
        return failed

    def _bans(self, sent: Sequence[str]) -> dict[str, str]:
        banned = banned_hosts(self._catalogue.runs)
        if banned is None:  # unknown: keep the alerts that were sent, so that they are not sent again afterwards
            return {name: "" for name in sent if name.startswith("host ")}
        return {f"host {name}: banned": "BOINC's scheduler refuses it" for name in sorted(banned)}

    def _read(self) -> tuple[set[str], tuple[str, ...]]:
        """Return the names of the jobs that were open at the last check, and the alerts that are known to be sent.

        Both are empty before the first check, or if alerts.json is damaged.
        """
        with suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads(self._file.read_text(encoding="utf-8"))
            return set(map(str, state["open"])), tuple(map(str, state.get("reported", state.get("told"))))
        return set(), ()

    def _end(self, name: str) -> Iterator[tuple[str, str]]:
        row = self._catalogue.row(name)
        if not isinstance(row, JobRow):  # it was removed, or cannot be read
            return
        how_far = f"epoch {row.epoch} of {row.epochs}, {row.monitor} {row.value}"
        if row.state is RunState.FAILED:
            yield "failed", f"it was given up in {how_far}: a shard failed every time it was tried"
        else:
            yield "done", how_far

    def _causes(self, view: JobView, now_s: float) -> Iterator[tuple[str, str]]:
        if words := standstill(view, view.standing.state, now_s):
            yield "stalled", words
        if collapses := [one for one in view.report.history.rollbacks if not one.host]:  # each is a cause of its own
            yield f"collapsed at version {collapses[-1].collapsed}", rolled_back_words(collapses[-1])
        for name in view.hosts.hosts:
            if (trust := ShownTrust.of(view.job, view.hosts, name)).is_out:
                yield f"{name} is out", f"its uploads are refused because it is {trust.state}: `vcdl hosts` shows why"
        if why := self._store_trouble(view):
            yield "store away", why

    def _store_trouble(self, view: JobView) -> str:
        """Return why the store of a job does not answer, or "" if it answers or is a folder.

        The store is queried at every fourth check; in between the last result is returned.
        """
        name = view.folder.path.name
        if self._looks % _STORES_EVERY == 0:
            self._away.pop(name, None)
            try:
                settings = requested_settings(view.job, view.folder)
                if settings.is_folder:
                    return ""
                # Use a name of its own for the query, so that it never touches a job's weights.
                with closing(open_store(settings, "vcdl-trial", 1)) as store:
                    store.check_service()
            except StoreError as error:
                self._away[name] = str(error)
        return self._away.get(name, "")

    def _look_for_ever(self) -> None:
        while True:
            try:
                for why in self.look():
                    _log.warning("%s", why)
            except Exception:  # the service continues without alerts, and logs that
                _log.exception("alerts: a look at the jobs failed")
            time.sleep(_EVERY_S)
