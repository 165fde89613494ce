"""The layout of a store's vector."""

import numpy as np

from vcdl.rules.state import STATELESS, RuleState

STATE = RuleState(vectors=2, lengths=3)


def test_a_job_begins_with_zeros_beside_its_weights() -> None:
    whole = STATE.begun(np.array([1.0, 2.0], np.float32))
    assert whole.tolist() == [1, 2, 0, 0, 0, 0, 0, 0, 0]
    assert whole.size == STATE.size(2)


def test_every_number_has_its_place() -> None:
    whole = np.arange(9, dtype=np.float32)
    assert STATE.weights(whole).tolist() == [0, 1]
    assert STATE.beside(whole).tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert STATE.rows(whole).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert STATE.lengths_of(STATE.tail_of(whole)).tolist() == [6, 7, 8]


def test_all_are_views() -> None:
    whole = np.zeros(9, np.float32)
    for part in (STATE.weights(whole), STATE.beside(whole), STATE.rows(whole), STATE.lengths_of(STATE.tail_of(whole))):
        part += 1
    assert whole.tolist() == [2, 2, 2, 2, 2, 2, 2, 2, 2]


def test_a_rule_without_a_state_gets_its_weights_as_they_are() -> None:
    weights = np.arange(4, dtype=np.float32)
    assert STATELESS.begun(weights) is weights
    assert STATELESS.rows(weights).tolist() == STATELESS.weights(weights).tolist() == weights.tolist()
    assert STATELESS.beside(weights).size == STATELESS.lengths_of(STATELESS.tail_of(weights)).size == 0
    assert not STATELESS
    assert RuleState(lengths=1)


def test_lengths_alone_leave_the_weights_a_vector() -> None:
    whole = np.arange(5, dtype=np.float32)
    assert RuleState(lengths=2).rows(whole).tolist() == [0, 1, 2]
