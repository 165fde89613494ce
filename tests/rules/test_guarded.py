"""A guard in front of a rule: clipping, and acceptance by held-out data."""

from dataclasses import replace

import pytest

from tests.rules.updates import begun, noise, update, vector
from vcdl.checks import Refusal
from vcdl.rules.base import Measured, Update
from vcdl.rules.fedasync import Constant
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.guarded import Guarded
from vcdl.rules.vc_asgd import VcAsgd


def measured(length: float, usual: float, *weights: float) -> Update:
    return replace(update(vector(*weights), vector(2.0, 2.0)), measured=Measured(length, usual))


def test_a_long_step_is_shortened_before_the_rule_gets_it() -> None:
    server = vector(1.0, -4.0)
    # κ = 2·1/8; C' = 2 + ¼·(C − 2) = 3 and 1; α = ½
    assert Guarded(VcAsgd(0.5), 2.0, None).apply(server, measured(8.0, 1.0, 6.0, -2.0)) == 0.125
    assert server.tolist() == [2.0, -1.5]


def test_a_step_of_usual_length_is_left_alone() -> None:
    rule, one, other = Guarded(VcAsgd(0.7), 1.0, None), noise(0, 1009), noise(0, 1009)
    brought = replace(update(noise(1, 1009), noise(2, 1009)), measured=Measured(1.0, 1.0))
    assert rule.apply(one, brought) == VcAsgd(0.7).apply(other, brought)
    assert one.tobytes() == other.tobytes()


def test_a_guarded_rule_keeps_what_the_rule_keeps() -> None:
    inner = FedBuff(1.0, 2, Constant())
    rule = Guarded(inner, 1.0, None)
    assert (rule.state.vectors, rule.state.lengths > 0) == (1, True)
    server = begun(rule, vector(0.0))
    rule.apply(server, replace(update(vector(8.0), vector(0.0)), measured=Measured(8.0, 2.0)))
    assert server.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(("cosine", "is_refused"), [(0.5, False), (0.1, False), (0.05, True), (-1.0, True)])
def test_what_leads_away_from_held_out_data_is_refused(cosine: float, is_refused: bool) -> None:
    refused = Guarded(VcAsgd(0.5), 1.0, 0.1).refused(Measured(1.0, 1.0, cosine))
    assert (refused is not None) == is_refused
    if refused is not None:
        assert refused.refusal == Refusal.AGAINST_REFERENCE
        assert f"cosine {cosine:.4f}" in refused.detail


def test_what_counts_already_is_not_judged_again() -> None:
    assert Guarded(VcAsgd(0.5), 1.0, 0.1).refused(Measured(1.0, 1.0)) is None


def test_only_a_rule_that_judges_asks_for_held_out_data() -> None:
    assert Guarded(VcAsgd(0.5), 1.0, 0.0).needs_reference
    assert not Guarded(VcAsgd(0.5), 1.0, None).needs_reference


def test_the_measured_step_is_what_the_client_learned() -> None:
    step = Guarded(VcAsgd(0.5), 1.0, None).step(vector(9.0, 9.0), update(vector(5.0, 1.0), vector(2.0, 2.0)))
    assert step.tolist() == [3.0, -1.0]
