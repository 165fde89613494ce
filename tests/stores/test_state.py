"""Stores with a rule's own vectors beside W: one vector, one transaction."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.rules.updates import replayed
from tests.store_folds import subtask, weights, workunit
from tests.store_servers import SIZE, OpenStore
from tests.stores.conftest import Service
from vcdl.checks import Refusal, Refused
from vcdl.errors import StoreLost
from vcdl.rules.base import Measured, Rule, Update
from vcdl.rules.fedasync import Constant
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.guarded import Guarded
from vcdl.rules.measuring import MeasuringRule
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.stores import Boundary, Change, Fold, Unfit, WeightStore
from vcdl.stores.change import FOLD_BLOCK
from vcdl.wire.weights import Vector

FEDBUFF = FedBuff(1.0, 3, Constant())
CLIPPED = Guarded(FEDBUFF, 0.9, None)


@dataclass
class Brought(Change):
    """An upload that began with weights of zero, under a rule with a state."""

    rule: Rule
    weights: Vector
    number: int
    refusal: Refusal | None = None
    looked: list[int] = field(default_factory=list)
    square: float = 0.0
    measured: Measured | None = None

    @property
    def needs_first_pass(self) -> bool:
        return isinstance(self.rule, MeasuringRule)

    @property
    def folds_alone(self) -> bool:
        return self.needs_first_pass

    def first_pass(self, w: Vector, begin: int) -> None:
        part = self.weights[begin : begin + w.shape[-1]].astype(np.float64)
        self.looked.append(begin)
        self.square += float(part @ part)

    def first_pass_done(self, lengths: Vector) -> None:
        lengths[self.number % lengths.size] = np.sqrt(self.square)
        known = sorted(lengths[lengths > 0])
        self.measured = Measured(float(lengths[self.number % lengths.size]), float(known[(len(known) - 1) // 2]))

    def apply(self, w: Vector, begin: int) -> float:
        client = self.weights[begin : begin + w.shape[-1]]
        update = Update(
            weights=client,
            epoch=1,
            staleness=0,
            samples=10,
            fraction=1.0,
            number=self.number,
            base=np.zeros_like(client),
            measured=self.measured,
        )
        return self.rule.apply(w, update)

    @property
    def refused(self) -> Refused | None:
        return None if self.refusal is None else Refused(self.refusal, "for a test")


def fold(rule: Rule, number: int, size: int = SIZE, refusal: Refusal | None = None) -> Fold:
    """The upload that makes version `number`, when none before it is refused."""
    client = weights(number, size)
    return Fold(subtask(number), workunit(number), 0, lambda s: Brought(rule, client, s + 1, refusal))


def whole_after(rule: Rule, updates: int, size: int = SIZE) -> Vector:
    """The expected whole vector."""
    whole = rule.state.begun(weights(0, size))
    for number in range(1, updates + 1):
        client = weights(number, size)
        replayed(
            rule,
            whole,
            Update(
                weights=client,
                epoch=1,
                staleness=0,
                samples=10,
                fraction=1.0,
                number=number,
                base=np.zeros_like(client),
            ),
        )
    return whole


def created(open_store: OpenStore, rule: Rule, **options: int) -> WeightStore:
    store = open_store(state=rule.state, **options)
    store.create(weights(0, options.get("size", SIZE)))
    return store


@pytest.mark.parametrize("rule", [FEDBUFF, TrimmedMean(1.0, 4, 1, Constant()), CLIPPED], ids=repr)
def test_state_and_weights_go_on_together_and_readers_get_the_weights(open_store: OpenStore, rule: Rule) -> None:
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


def test_a_fold_ends_with_an_upload_that_is_looked_at(open_store: OpenStore) -> None:
    store = created(open_store, CLIPPED)
    assert [record.version for record in store.fold([fold(CLIPPED, 1), fold(CLIPPED, 2)])] == [1]
    assert [record.version for record in store.fold([fold(CLIPPED, 1), fold(CLIPPED, 2)])] == [1, 2]
    assert store.read_whole()[1].tobytes() == whole_after(CLIPPED, 2).tobytes()


@pytest.mark.parametrize("rule", [FEDBUFF, CLIPPED], ids=repr)
def test_what_is_refused_leaves_no_trace_in_the_state(open_store: OpenStore, rule: Rule) -> None:
    store = created(open_store, rule)
    store.fold([fold(rule, 1)])
    with pytest.raises(Unfit):
        store.fold([fold(rule, 2, refusal=Refusal.AGAINST_REFERENCE)])
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


def test_more_than_a_block_comes_to_the_same_as_all_at_once(open_store: OpenStore) -> None:
    size = FOLD_BLOCK + 7
    store = created(open_store, CLIPPED, size=size)
    for number in range(1, 5):
        store.fold([fold(CLIPPED, number, size)])
    assert store.read_whole()[1].tobytes() == whole_after(CLIPPED, 4, size).tobytes()


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
