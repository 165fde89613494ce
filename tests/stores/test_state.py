"""Stores with a rule's own vectors beside W: one vector, one transaction."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.stores.conftest import Service
from vcdl.errors import StoreLost
from vcdl.errors.refusal import Refusal, Refused
from vcdl.rules.base import Rule, Update
from vcdl.rules.damping import Constant
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.state import LENGTHS, RuleState
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.stores import Boundary, Change, Fold, Unfit, WeightStore
from vcdl.stores.change import FOLD_BLOCK
from vcdl.testing.folds import SIZE, subtask, weights, workunit
from vcdl.testing.stores import OpenStore
from vcdl.wire.layout import Vector

FEDBUFF = FedBuff(server_learning_rate=1.0, buffer=3, staleness=Constant())


@dataclass(frozen=True)
class Measured:
    """A rule whose uploads are measured before they are folded in: their lengths are in a table, as with bounds."""

    rule: Rule

    @property
    def state(self) -> RuleState:
        return replace(self.rule.state, first_row=(1.0,))


MEASURED = Measured(FEDBUFF)
Kind = Rule | Measured


@dataclass
class Brought(Change):
    """An upload that began with weights of zero, under a rule with a state."""

    rule: Kind
    weights: Vector
    number: int
    refusal: Refusal | None = None
    square: float = 0.0
    usual: float = 1.0

    @property
    def needs_first_pass(self) -> bool:
        return isinstance(self.rule, Measured)

    def first_pass(self, w: Vector, begin: int) -> None:
        part = self.weights[begin : begin + w.shape[-1]].astype(np.float64)
        self.square += float(part @ part)

    def first_pass_done(self, tail: Vector) -> None:
        tail[self.number % LENGTHS] = np.sqrt(self.square)
        self.usual = float(tail.max())

    def apply(self, w: Vector, begin: int) -> float:
        client = self.weights[begin : begin + w.shape[-1]]
        update = Update(
            weights=client, epoch=1, staleness=0, samples=10, fraction=1.0, number=self.number,
            base=np.zeros_like(client),
        )  # fmt: skip
        return folding(self.rule).apply(w, replace(update, fraction=1.0 / self.usual))

    @property
    def refused(self) -> Refused | None:
        return None if self.refusal is None else Refused(self.refusal, "for a test")


def folding(rule: Kind) -> Rule:
    return rule.rule if isinstance(rule, Measured) else rule


def fold(rule: Kind, number: int, size: int = SIZE, refusal: Refusal | None = None) -> Fold:
    """The upload that makes version `number`, when none before it is refused."""
    client = weights(number, size)
    return Fold(subtask(number), workunit(number), 0, lambda s: Brought(rule, client, s + 1, refusal))


def whole_after(rule: Kind, updates: int, size: int = SIZE) -> Vector:
    """The expected whole vector."""
    whole = rule.state.initial(weights(0, size))
    for number in range(1, updates + 1):
        brought = Brought(rule, weights(number, size), number)
        if brought.needs_first_pass:
            for begin in range(0, max(1, size), FOLD_BLOCK // 2):
                brought.first_pass(rule.state.weights(whole)[begin : begin + FOLD_BLOCK // 2], begin)
            brought.first_pass_done(rule.state.tail_of(whole))
        brought.apply(rule.state.rows(whole), 0)
    return whole


def created(open_store: OpenStore, rule: Kind, **options: int) -> WeightStore:
    store = open_store(state=rule.state, **options)
    store.create(weights(0, options.get("size", SIZE)))
    return store


@pytest.mark.parametrize(
    "rule", [FEDBUFF, TrimmedMean(server_learning_rate=1.0, buffer=4, trim=1, staleness=Constant()), MEASURED], ids=repr
)
def test_state_and_weights_go_on_together_and_readers_get_the_weights(open_store: OpenStore, rule: Kind) -> None:
    store = created(open_store, rule)
    assert store.read_whole()[1].tobytes() == whole_after(rule, 0).tobytes()
    for number in range(1, 8):
        store.fold([fold(rule, number)])
        version, whole = open_store(state=rule.state).read_whole()
        assert (version, whole.tobytes()) == (number, whole_after(rule, number).tobytes())
        assert store.read()[1].tobytes() == rule.state.weights(whole).tobytes()


def test_several_in_one_fold_come_to_the_same(open_store: OpenStore) -> None:
    store = created(open_store, FEDBUFF)
    store.fold([fold(FEDBUFF, number) for number in range(1, 8)])
    assert store.read_whole()[1].tobytes() == whole_after(FEDBUFF, 7).tobytes()


def test_several_that_are_measured_are_measured_before_any_is_folded_in(open_store: OpenStore) -> None:
    store = created(open_store, MEASURED)
    assert [record.version for record in store.fold([fold(MEASURED, 1), fold(MEASURED, 2)])] == [1, 2]
    tail = MEASURED.state.tail_of(store.read_whole()[1])
    assert tail[1:3] == pytest.approx([np.linalg.norm(weights(number)) for number in (1, 2)])


@pytest.mark.parametrize("rule", [FEDBUFF, MEASURED], ids=repr)
def test_what_is_refused_leaves_no_trace_in_the_state(open_store: OpenStore, rule: Kind) -> None:
    store = created(open_store, rule)
    store.fold([fold(rule, 1)])
    with pytest.raises(Unfit):
        store.fold([fold(rule, 2, refusal=Refusal.AGAINST_OTHERS)])
    assert store.read_whole()[1].tobytes() == whole_after(rule, 1).tobytes()
    store.fold([fold(rule, 2)])
    assert store.read_whole()[1].tobytes() == whole_after(rule, 2).tobytes()


def test_a_boundary_keeps_the_weights_alone(open_store: OpenStore) -> None:
    store, kept = created(open_store, FEDBUFF), dict[int, Vector]()
    boundary = Boundary(3, lambda version, w: kept.update({version: w.copy()}), lambda version: version in kept)
    for _ in range(3):
        store.fold([fold(FEDBUFF, number) for number in range(1, 8)], boundary)
    assert {version: w.tobytes() for version, w in kept.items()} == {
        number: FEDBUFF.state.weights(whole_after(FEDBUFF, number)).tobytes() for number in (0, 3, 6)
    }


@pytest.mark.sampled(3)
def test_more_than_a_block_comes_to_the_same_as_all_at_once(open_store: OpenStore) -> None:
    size = FOLD_BLOCK + 7
    store = created(open_store, MEASURED, size=size)
    for number in range(1, 5):
        store.fold([fold(MEASURED, number, size)])
    assert store.read_whole()[1].tobytes() == whole_after(MEASURED, 4, size).tobytes()


@pytest.mark.server
def test_a_server_that_forgot_is_given_both_back(service: Service, job: str) -> None:
    store = service.open(job, state=FEDBUFF.state)
    store.create(weights(0))
    store.fold([fold(FEDBUFF, 1)])
    version, whole = store.read_whole()
    store.drop()
    with pytest.raises(StoreLost):
        store.read()
    assert store.restore(version, whole, [])
    store.fold([fold(FEDBUFF, 2)])
    assert store.read_whole()[1].tobytes() == whole_after(FEDBUFF, 2).tobytes()
