"""The line of submissions that wait to be checked: it has its own threads, not those that answer pages.

A submission takes minutes: its files are written, a process checks it, and with fleets another one plans it. Each
caller has one place in the line, so each waits for at most one job of every other caller. A request waits for a while
without a thread, and then gets its place; the client asks again with the same Idempotency-Key, and gets the same
ticket. A line that ends with the service is no loss: the same request starts a new one.
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
"""Submissions that wait: at some six seconds each the last one waits for five minutes."""
RETRY_S = 10


class LineFull(Unavailable):
    """The line has no free place now."""


@dataclass(frozen=True, eq=False)
class Ticket:
    """A place in the line."""

    caller: str
    key: str
    digest: str
    work: Callable[[], str]
    outcome: "Future[str | BaseException]" = field(default_factory=Future)
    """The job's name, or the error: stored as a value, since an exception might never be retrieved."""


class SubmissionLine:
    """The tickets, in the order in which they will be served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._last: dict[str, Ticket] = {}
        """Caller → its last ticket, which may be done."""
        self._threads = 0

    def enter(self, caller: str, key: str, digest: str, work: Callable[[], str]) -> Ticket:
        """Return a new ticket, or the one that this key already has.

        Raises:
            JobError: The key belongs to another submission.
            LineFull: There is no free place.
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
        """Return a ticket's place in the line, 1 for the next, or 0 while it is being checked."""
        with self._lock:
            return self._waiting.index(ticket) + 1 if ticket in self._waiting else 0

    def forget(self, ticket: Ticket) -> None:
        """Forget a ticket whose error was reported, so that the same key may be used again."""
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
            except BaseException as error:  # it is reported to the caller, bugs included
                ticket.outcome.set_result(error)


def another_job() -> JobError:
    """Return the error for a key that is sent again with another job."""
    return JobError("this Idempotency-Key was already used for another job: use a new key")
