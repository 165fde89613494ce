"""Steps of strangers that no honest client makes, and honest ones that only look like them."""

from dataclasses import replace

import numpy as np
import pytest

from vcdl.errors.refusal import Refusal, Refused
from vcdl.trust.step import Step, StepCheck

HONEST = Step(length=1.0, usual=1.0, furthest=2.0, cosine=0.4, reference=0.3)


def check_after(updates: int, cosine: float = 0.4, reference: float = 0.3) -> StepCheck:
    check = StepCheck()
    for _ in range(updates):
        check.accept(cosine, reference)
    return check


def refusal(step: Step, updates: int = 20, **usual: float) -> Refusal | None:
    try:
        check_after(updates, **usual).judge(step)
    except Refused as refused:
        return refused.refusal
    return None


@pytest.mark.parametrize("updates", [0, 20])
@pytest.mark.parametrize("length", [0.0, 1e-6, 0.02, 0.3, 1.0, 3.9])
def test_honest_lengths_pass(updates: int, length: float) -> None:
    assert refusal(replace(HONEST, length=length), updates) is None


@pytest.mark.parametrize("updates", [0, 20])
def test_a_step_that_is_far_too_long_is_refused(updates: int) -> None:
    assert refusal(replace(HONEST, length=4.1), updates) == Refusal.STEP_TOO_LONG


def test_a_single_variable_that_moves_absurdly_far_is_refused() -> None:
    assert refusal(replace(HONEST, furthest=1e15)) == Refusal.STEP_TOO_LONG
    assert refusal(replace(HONEST, furthest=8.0)) is None


@pytest.mark.parametrize("updates", [0, 20])
def test_a_step_against_both_directions_is_refused(updates: int) -> None:
    assert refusal(replace(HONEST, cosine=-0.4, reference=-0.3), updates) == Refusal.AGAINST_OTHERS


@pytest.mark.parametrize(("cosine", "reference"), [(-0.9, 0.1), (0.1, -0.9), (-0.9, -0.05), (-0.05, -0.9)])
def test_one_direction_alone_does_not_speak_against_it(cosine: float, reference: float) -> None:
    assert refusal(replace(HONEST, cosine=cosine, reference=reference)) is None


def test_the_first_uploads_are_compared_with_the_servers_own_step_alone() -> None:
    assert refusal(replace(HONEST, cosine=None, reference=-0.4), updates=0) == Refusal.AGAINST_OTHERS
    assert refusal(replace(HONEST, cosine=None, reference=0.0), updates=0) is None
    assert refusal(replace(HONEST, cosine=None, reference=None), updates=0) is None


def test_a_fresh_step_that_only_the_server_can_judge_may_scatter_as_others_do() -> None:
    """Cosines with the server's own step in a job on a real server, each from the newest weights."""
    late = [0.14, 0.05, 0.11, 0.1, 0.05, 0.09, 0.14, 0.18, -0.02, -0.07, -0.08, 0.02, 0.06, -0.02, 0.01, 0.18]
    check = StepCheck()
    check.recall((None, cosine) for cosine in late)
    check.judge(replace(HONEST, cosine=None, reference=-0.143))
    early = StepCheck()
    early.recall((None, cosine) for cosine in (0.39, 0.32, 0.36, 0.36, 0.38, 0.36, 0.4, 0.33, 0.35, 0.3))
    early.judge(replace(HONEST, cosine=None, reference=0.1))
    with pytest.raises(Refused):
        early.judge(replace(HONEST, cosine=None, reference=-0.36))


def test_where_honest_steps_hardly_agree_little_is_refused() -> None:
    step = replace(HONEST, cosine=-0.12, reference=-0.12)
    assert refusal(step, cosine=0.25, reference=0.25) == Refusal.AGAINST_OTHERS
    assert refusal(step, cosine=0.6, reference=0.6) is None
    assert refusal(replace(step, cosine=-0.07, reference=-0.07), cosine=-0.1, reference=0.02) is None


def test_numbers_without_an_end_are_left_to_their_own_check() -> None:
    assert refusal(replace(HONEST, length=np.nan)) is None
    assert refusal(replace(HONEST, length=np.inf)) is None
