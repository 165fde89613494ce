"""Waiting for what is away."""

import pytest

from vcdl.errors import StoreError, StoreUnavailable
from vcdl.patience import Patience, patiently


def test_each_wait_is_twice_as_long_up_to_the_longest_until_it_has_answered() -> None:
    patience = Patience(first_s=1.0, longest_s=5.0)
    assert [patience.next_wait_s() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    patience.reset()
    assert patience.next_wait_s() == 1.0


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
    assert patiently(act, told.append) == 7
    assert told == ["it is away; trying again in 0.2 s", "it starts; trying again in 0.4 s"]
    assert slept_s == [0.2, 0.4]


def test_an_error_that_does_not_pass_is_not_waited_for() -> None:
    def act() -> None:
        raise StoreError("a stranger's certificate")

    with pytest.raises(StoreError, match="certificate"):
        patiently(act, pytest.fail)
