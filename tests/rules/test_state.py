"""The layout of a store's vector."""

import numpy as np

from vcdl.rules.state import LENGTHS, STATELESS, RuleState

STATE = RuleState(vectors=2, first_row=(0.5,))
SIZE = 6 + LENGTHS
"""The size with two weights, twice as many beside them, and a table of one column."""


def test_every_number_has_its_place() -> None:
    whole = np.arange(SIZE, dtype=np.float32)
    assert STATE.weights(whole).tolist() == [0, 1]
    assert STATE.beside(whole).tolist() == list(range(2, SIZE))
    assert STATE.rows(whole).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert STATE.table_of(STATE.tail_of(whole)).tolist() == [[number] for number in range(6, SIZE)]


def test_a_rule_without_a_state_gets_its_weights_as_they_are() -> None:
    weights = np.arange(4, dtype=np.float32)
    assert STATELESS.initial(weights) is weights
    assert STATELESS.rows(weights).tolist() == STATELESS.weights(weights).tolist() == weights.tolist()
    assert STATELESS.beside(weights).size == STATELESS.table_of(STATELESS.tail_of(weights)).size == 0
    assert not STATELESS
    assert RuleState(vectors=1)
