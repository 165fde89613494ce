"""Wait for a condition at an even pace, or retry with growing delays: a store, a database, a disk or a cloud."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from vcdl.errors import Unavailable

Result = TypeVar("Result")

POLL_S = 0.1
"""Seconds between two checks of another process or thread, if nothing else sets the pace, so that waits cost little."""


def wait_until(condition: Callable[[], Result], timeout_s: float = math.inf, every_s: float = POLL_S) -> Result:
    """Call `condition` repeatedly until its result is true or the time is over, and return its last result.

    Args:
        condition: The check, called at least once.
        timeout_s: Seconds after which the wait ends without success.
        every_s: Seconds from the end of a call to the next one.
    """
    give_up_s = time.monotonic() + timeout_s
    while not (answer := condition()) and (left_s := give_up_s - time.monotonic()) > 0:
        time.sleep(min(every_s, left_s))
    return answer


@dataclass
class Backoff:
    """The growing waits between retries: each is twice as long as the previous one, up to `longest_s`.

    The state is the next wait, which `reset` sets to `first_s` again.
    """

    first_s: float = 0.2
    longest_s: float = 15.0
    _wait_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def next_wait_s(self) -> float:
        """Return the seconds to wait now, and double the next wait, up to `longest_s`. It does not wait itself."""
        wait_s, self._wait_s = self._wait_s, min(self.longest_s, self._wait_s * 2)
        return wait_s

    def reset(self) -> None:
        self._wait_s = self.first_s


def within(seconds: float, ask: Callable[[], Result]) -> Result:
    """Call `ask` in a thread and return its result, or raise TimeoutError if it takes longer than a time limit.

    A socket's own timeout restarts with every byte, so a slow sender would never exceed it. After the limit the thread
    continues until `ask` returns, without effect on this call.

    Args:
        seconds: The limit.
        ask: The call.

    Raises:
        TimeoutError: There is no complete answer in time. Errors of `ask` are raised as they are.
    """
    answer: Future[Result] = Future()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # raised again in the caller's thread
            answer.set_exception(error)

    # A daemon thread, because a call that never returns must not keep the process alive.
    threading.Thread(target=wait, daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        # If the call has ended, `ask` itself has raised TimeoutError, which is raised unchanged.
        if answer.done():
            raise
        raise TimeoutError(f"no complete answer after {seconds:g} s") from None


@dataclass
class Attempts:
    """Paces the attempts of a step that may fail, in a loop that has other work and must not sleep.

    After a failure the step is not due until a wait of the backoff is over. A success makes it due at once, and the
    wait after the next failure is short again.
    """

    backoff: Backoff = field(default_factory=Backoff)
    clock: Callable[[], float] = time.monotonic
    why: str | None = field(default=None, init=False)
    """Why the step waits, as text; None: its last attempt succeeded, or there was none."""
    wait_s: float = field(default=0.0, init=False)
    """Seconds from the last failure to the next attempt."""
    _not_before_s: float = field(default=-math.inf, init=False)

    @property
    def is_due(self) -> bool:
        """Whether the step may be attempted now."""
        return self.clock() >= self._not_before_s

    def attempt(self, step: Callable[[], Result]) -> Result | None:
        """Call `step` if it is due, and return its result; None: it is not due, or it raised Unavailable.

        Unavailable counts as a failure, so that the step is due again after a wait. Other errors are raised and change
        nothing.
        """
        if not self.is_due:
            return None
        try:
            result = step()
        except Unavailable as away:
            self.record_failure(away)
            return None
        self.record_success()
        return result

    def record_failure(self, why: object, wait_s: float | None = None) -> str:
        """Record a failure, so that the step is due after a wait; return a line for a log with the reason and the wait.

        Args:
            why: The reason.
            wait_s: Seconds to the next attempt; None: the backoff decides.
        """
        self.why = str(why)
        self.wait_s = self.backoff.next_wait_s() if wait_s is None else wait_s
        self._not_before_s = self.clock() + self.wait_s
        return f"{self.why}; trying again in {self.wait_s:g} s"

    def record_success(self) -> None:
        """Record a success: the step is due at once, and the wait after the next failure is the shortest one."""
        self.why, self.wait_s, self._not_before_s = None, 0.0, -math.inf
        self.backoff.reset()


def retry(act: Callable[[], Result], tell: Callable[[str], None]) -> Result:
    """Call `act` until it no longer raises Unavailable, and return its result; sleep for growing times between.

    Args:
        act: The call to repeat, without a limit on the number of calls.
        tell: Called before each wait with a line for a log: the reason and the seconds.
    """
    attempts = Attempts()
    while True:
        try:
            return act()
        except Unavailable as away:
            tell(attempts.record_failure(away))
            time.sleep(attempts.wait_s)
