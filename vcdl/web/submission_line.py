"""Queue the submissions that wait to be checked, and check them in threads that are not those that answer pages.

A submission takes minutes: its files are written, a process checks it, and with fleets another one plans it. Each
caller has one place in the line, so each waits for at most one job of every other caller. A request waits for a while
without a thread, and is then answered with its place in the line. The client repeats it with the same Idempotency-Key,
which finds the same ticket. The line is only in memory: if the service is killed, the repeated request makes a new
ticket, and no job is created twice (`Submissions.submit`).
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from vcdl.errors import JobError, Unavailable

AT_ONCE = 2
"""Submissions that are checked simultaneously: two, because with only one a job whose check takes three minutes would
block all others, and each check is a process that imports Keras."""
MOST_WAITING = 100
"""Most submissions that wait: at some six seconds each, two at a time, the last one waits for five minutes."""
RETRY_S = 10


class LineFull(Unavailable):
    """The line is full, or the caller already has another submission in it; retry later."""


@dataclass(frozen=True, eq=False)
class Ticket:
    """A submission in the line."""

    caller: str
    """Name of the submitter."""
    key: str
    """The request's Idempotency-Key."""
    digest: str
    """SHA-256 of the submission."""
    work: Callable[[], str]
    """Checks, stores and starts the job, and returns its name."""
    outcome: "Future[str | BaseException]" = field(default_factory=Future)
    """The job's name, or the error: stored as a value, since an exception might never be retrieved."""


class SubmissionLine:
    """Serves submissions in the order in which they arrive, AT_ONCE at a time, one of each caller.

    A caller's last ticket is remembered after its end, so that a repeated request gets the same outcome. All methods
    are thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._last: dict[str, Ticket] = {}
        """Name of a caller → their last ticket, which may have an outcome already."""
        self._threads = 0
        """Running threads; each ends when no submission waits."""

    def enter(self, caller: str, key: str, digest: str, work: Callable[[], str]) -> Ticket:
        """Put a submission at the end of the line, or find the ticket that an earlier request with this key got.

        Args:
            caller: Name of the submitter.
            key: The request's Idempotency-Key.
            digest: SHA-256 of the submission.
            work: Checks, stores and starts the job, and returns its name; called in a thread.

        Raises:
            JobError: The key was already used for another submission.
            LineFull: Another job of the caller is still being checked, or too many wait.
        """
        with self._lock:
            last = self._last.get(caller)
            if last is not None and last.key == key:
                if last.digest != digest:
                    raise another_job()
                return last
            if last is not None and not last.outcome.done():
                raise LineFull(
                    f"another job of {caller} is being checked: submit this job once that check has finished"
                )
            if len(self._waiting) >= MOST_WAITING:
                raise LineFull(f"{MOST_WAITING} jobs are waiting to be checked: submit again in a minute")
            ticket = Ticket(caller, key, digest, work)
            self._last[caller] = ticket
            self._waiting.append(ticket)
            # Threads start when there is work and end with it: an idle service has none.
            if self._threads < AT_ONCE:
                self._threads += 1
                # A daemon thread, so that the end of the service does not wait for a check: an incomplete submission
                # has no effect.
                threading.Thread(target=self._work, name="vcdl-submissions", daemon=True).start()
        return ticket

    def place(self, ticket: Ticket) -> int:
        """Return a ticket's place in the line: 1 for the next one to be checked, 0 from the start of its check on."""
        with self._lock:
            return self._waiting.index(ticket) + 1 if ticket in self._waiting else 0

    def forget(self, ticket: Ticket) -> None:
        """Forget a ticket whose error was reported, so that the same key may be used for the corrected job."""
        with self._lock:
            if self._last.get(ticket.caller) is ticket:
                del self._last[ticket.caller]

    def _work(self) -> None:
        while True:
            with self._lock:
                # Decrement the count under the same lock under which the line was found empty: otherwise `enter` could
                # rely on a thread that is about to end.
                if not self._waiting:
                    self._threads -= 1
                    return
                ticket = self._waiting.popleft()
            try:
                ticket.outcome.set_result(ticket.work())
            except BaseException as error:  # bugs, too: otherwise the caller would wait forever
                ticket.outcome.set_result(error)


def another_job() -> JobError:
    """Return the error for a key that is sent again with another job."""
    return JobError("this Idempotency-Key was already used for another job: use a new key")
