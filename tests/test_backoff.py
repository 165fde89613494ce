"""Waiting for what is away."""

import threading
from dataclasses import dataclass

import pytest

from tests.manual_clock import Clock
from tests.trickle import IN_BODY, IN_HEADERS, Trickle
from vcdl.boinc.doctor import asking
from vcdl.errors import FleetError, FleetUnavailable, RunFolderFull, StoreError, StoreUnavailable, Unavailable
from vcdl.errors.backoff import Attempts, Backoff, retry, wait_until, within
from vcdl.fleet import project
from vcdl.fleet.gcp import prices


@dataclass
class Step:
    """Counts its calls, and raises what it is told to."""

    error: Exception | None = None
    calls: int = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.calls


def test_an_answer_in_time_is_what_was_asked_for_or_its_error() -> None:
    assert within(10.0, Step()) == 1
    for error in (StoreError("it broke"), TimeoutError("its own")):
        with pytest.raises(type(error), match=str(error)):
            within(10.0, Step(error))


def test_who_does_not_answer_in_time_is_not_waited_for() -> None:
    ended = threading.Event()
    with pytest.raises(TimeoutError, match="no complete answer after"):
        within(0.05, ended.wait)
    ended.set()


@pytest.mark.server
@pytest.mark.parametrize("begin_of_answer", [IN_HEADERS, IN_BODY])
def test_a_byte_now_and_then_holds_nobody_who_asks_the_web(
    begin_of_answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (asking, project, prices):
        monkeypatch.setattr(module, "within", lambda _, ask: within(0.3, ask))
    servers = [Trickle(begin_of_answer) for _ in range(3)]
    doctor, fleet, google = (f"{server.url}/" for server in servers)
    with pytest.raises(asking.NoAnswer, match="no complete answer"):
        asking.ask(doctor)
    with pytest.raises(FleetError, match="no complete answer"):
        project.weak_key(fleet, "key")
    with pytest.raises(FleetUnavailable, match="no complete answer"):
        list(prices.GcpPrices("key", google).quotes([], "us-east1"))
    assert not any(server.has_ended.is_set() for server in servers)


def test_each_wait_is_twice_as_long_up_to_the_longest_until_it_has_answered() -> None:
    backoff = Backoff(first_s=1.0, longest_s=5.0)
    assert [backoff.next_wait_s() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next_wait_s() == 1.0


def test_what_is_away_is_called_again_and_every_wait_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s: list[float] = []
    monkeypatch.setattr("time.sleep", slept_s.append)
    answers: list[int | Exception] = [StoreUnavailable("it is away"), StoreUnavailable("it starts"), 7]

    def act() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    told: list[str] = []
    assert retry(act, told.append) == 7
    assert told == ["it is away; trying again in 0.2 s", "it starts; trying again in 0.4 s"]
    assert slept_s == [0.2, 0.4]


def test_an_error_that_does_not_pass_is_not_waited_for() -> None:
    def act() -> None:
        raise StoreError("a stranger's certificate")

    with pytest.raises(StoreError, match="certificate"):
        retry(act, pytest.fail)


def test_a_step_that_failed_is_not_attempted_before_its_time_and_says_why() -> None:
    clock = Clock()
    step, attempts = Step(RunFolderFull("the disk is full")), Attempts(Backoff(2.0, 5.0), clock)
    assert attempts.is_due
    waits_s = []
    for calls in range(1, 5):
        assert attempts.attempt(step) is None
        assert (attempts.why, step.calls) == ("the disk is full", calls)
        waits_s.append(attempts.wait_s)
        clock.now_s += attempts.wait_s - 0.001
        assert not attempts.is_due
        assert attempts.attempt(step) is None
        assert step.calls == calls, "called before its time"
        clock.now_s += 0.001
        assert attempts.is_due
    assert waits_s == [2.0, 4.0, 5.0, 5.0]


def test_a_step_that_succeeds_waits_for_nothing_and_briefly_after_the_next_failure() -> None:
    clock = Clock()
    step, attempts = Step(Unavailable("away")), Attempts(Backoff(2.0, 60.0), clock)
    for _ in range(3):
        attempts.attempt(step)
        clock.now_s += attempts.wait_s
    step.error = None
    assert attempts.attempt(step) == 4
    assert (attempts.why, attempts.wait_s, attempts.is_due) == (None, 0.0, True)
    assert attempts.attempt(step) == 5, "at once"
    step.error = Unavailable("away")
    attempts.attempt(step)
    assert attempts.wait_s == 2.0


def test_an_error_that_does_not_pass_goes_through_an_attempt_and_changes_nothing() -> None:
    attempts = Attempts(Backoff(2.0))
    with pytest.raises(StoreError):
        attempts.attempt(Step(StoreError("the wrong model")))
    assert (attempts.why, attempts.is_due, attempts.backoff.next_wait_s()) == (None, True, 2.0)


def test_what_is_waited_for_is_asked_until_it_is_true_or_the_time_is_over() -> None:
    answers = iter([0, 0, 7])
    assert wait_until(lambda: next(answers), every_s=0.001) == 7
    assert wait_until(list, timeout_s=0.01, every_s=60.0) == []
    asked: list[int] = []
    assert not wait_until(lambda: asked.append(1), timeout_s=0.0)
    assert asked == [1], "once, however short the time"
