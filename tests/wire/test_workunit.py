"""What crosses a process: encoded, decoded strictly, and named."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcdl.errors import WorkunitError
from vcdl.wire.fields import FORMAT
from vcdl.wire.taken import is_taken
from vcdl.wire.workunit import (
    Named,
    Normalisation,
    Output,
    Training,
    UpdateHeader,
    Workunit,
    WorkunitName,
)

TRAINING = Training(
    optimizer=Named("adam", {"beta_1": 0.9}),
    learning_rate=0.001,
    batch_size=32,
    local_epochs=2,
    loss=Named("sparse_categorical_crossentropy"),
    metrics=(Named("accuracy"), Named("top_k", {"k": 3})),
    normalisation=Normalisation((0.5, 1.0), (-1.0, 0.0)),
)
WORKUNIT = Workunit(job="digits", epoch=3, shard=17, attempt=0, base_version=142, seed=7, training=TRAINING)
HEADER = UpdateHeader(
    job="digits", workunit=WORKUNIT.name, base_version=142, layout="0123456789abcdef", samples=32, fraction=0.5,
    train_s=1.25, loss=0.7,
)  # fmt: skip

jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_a_workunit_survives_its_json() -> None:
    assert Workunit.from_json(WORKUNIT.to_json()) == WORKUNIT
    of_inputs = (("words", Normalisation(integers=True)), ("table", Normalisation((0.5,), (1.0,))))
    outputs = (Output("kind", Named("mse")), Output("size", Named("huber", {"delta": 2}), (Named("mae"),), 0.5))
    training = replace(TRAINING, normalisation=Normalisation(inputs=of_inputs), outputs=outputs)
    several = replace(WORKUNIT, training=training)
    assert Workunit.from_json(several.to_json()) == several
    timed = replace(WORKUNIT, training=replace(TRAINING, target_s=90.0), begins=64)
    assert Workunit.from_json(timed.to_json()) == timed
    telling = replace(WORKUNIT, taken="00ff17" * 4)
    assert Workunit.from_json(telling.to_json()) == telling
    assert "taken" not in json.loads(WORKUNIT.to_json()), "older clients refuse keys that they do not know"
    bare = replace(WORKUNIT, training=Training(Named("sgd"), 0.1, 1, 1, Named("mse")))
    assert Workunit.from_json(bare.to_json()) == bare


@pytest.mark.parametrize(
    ("epoch", "shard", "mark", "took"),
    [(3, 1, 9, True), (3, 1, 8, False), (3, 2, 9, None), (4, 0, 9, None), (0, 0, 5, True), (0, 1, 9, None)],
)
def test_a_workunit_says_which_uploads_count(epoch: int, shard: int, mark: int, took: bool | None) -> None:
    marks = bytes([5, 0, 0, *[6] * 3, *[7] * 3, 8, 9, 0])
    workunit = replace(WORKUNIT, epoch=3, taken=marks.hex())
    assert is_taken(WorkunitName("digits", epoch, shard, 0, 0), mark, workunit) is took
    assert is_taken(WorkunitName("digits", 1, 0, 0, 0), 5, replace(workunit, epoch=5)) is False, "too long ago"
    assert is_taken(WorkunitName("digits", epoch, 0, 0, 0), 5, replace(workunit, taken=None)) in (None, False)


@pytest.mark.parametrize("taken", ["0g", "0", 5, ["00"], True])
def test_marks_that_are_none_are_refused(taken: object) -> None:
    raw = {**json.loads(WORKUNIT.to_json()), "taken": taken}
    with pytest.raises(WorkunitError):
        Workunit.from_json(json.dumps(raw))


@pytest.mark.parametrize("frozen", [{"size": 0, "sha256": "0" * 64}, {"size": 7, "sha256": "../x"}, {"size": 7}, 5])
def test_frozen_weights_that_are_named_wrongly_are_refused(frozen: object) -> None:
    with pytest.raises(WorkunitError, match=r"size|sha256|frozen"):
        Workunit.from_json(json.dumps(json.loads(WORKUNIT.to_json()) | {"frozen": frozen}))


def test_the_name_says_all_of_it() -> None:
    assert WORKUNIT.name == "digits_e0003_s017_a0_v000142"
    name = WorkunitName.parse(WORKUNIT.name)
    assert name.subtask == "e0003_s017"
    assert replace(name, attempt=4, base_version=900).subtask == name.subtask


def test_an_update_that_was_taken_back_is_another_subtask_from_its_next_attempt_on() -> None:
    first = replace(WorkunitName.parse(WORKUNIT.name), attempt=7)
    second = replace(first, attempt=first.next_turn)
    assert (first.turn, first.attempt_in_turn, first.begins_turn) == (0, 7, False)
    assert (second.turn, second.attempt_in_turn, second.begins_turn) == (1, 0, True)
    assert not replace(second, attempt=second.attempt + 1).begins_turn
    assert (second.subtask, replace(second, attempt=second.next_turn).subtask) == ("e0003_s017_t1", "e0003_s017_t2")
    assert replace(first, attempt=0).next_turn == second.attempt, "whichever attempt brought it"


@pytest.mark.parametrize(
    "name",
    [
        "", "digits", "digits_e3_s17_a0_v142", "Digits_e0003_s017_a0_v000142", "digits_e0003_s017_a0_v000142.h5",
        "../x_e0003_s017_a0_v000142", "digits_e0003_s017_a0_v000142\n", "digits_e٠٠٠٣_s017_a0_v000142",
        "digits_e0003_s017_a0_v" + "1" * 19, "digits_e0003_s017_a0_v" + "9" * 5000,
        "digits_e" + "9" * 5000 + "_s017_a0_v000142", "x" * 10000,
    ],
)  # fmt: skip
def test_another_name_is_not_taken_apart(name: str) -> None:
    with pytest.raises(WorkunitError, match="is not the name of a workunit"):
        WorkunitName.parse(name)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format"], 1, f"another format than {FORMAT}"),
        (["format"], float(FORMAT), f"another format than {FORMAT}"),
        (["epoch"], "3", "epoch: expected a whole number"),
        (["epoch"], True, "epoch: expected a whole number"),
        (["epoch"], -1, "epoch: expected a whole number"),
        (["epoch"], 2**63, "epoch: expected a whole number"),
        (["seed"], 1.5, "seed: expected a whole number"),
        (["job"], "", "job: expected a short text"),
        (["job"], "x" * 301, "job: expected a short text"),
        (["training"], [], "training: expected the keys"),
        (["training", "batch_size"], 0, "batch_size: expected a whole number ≥ 1"),
        (["training", "learning_rate"], float("nan"), "learning_rate: expected a finite number"),
        (["training", "learning_rate"], 10**400, "learning_rate: expected a finite number"),
        (["training", "optimizer"], "adam", "optimizer: expected the keys"),
        (["training", "optimizer", "arguments"], [], "arguments: expected an object"),
        (["training", "optimizer", "arguments"], {"a": json.loads("[" * 500 + "]" * 500)}, "at most 20 levels"),
        (["training", "metrics"], 5, "metrics: expected a list"),
        (["training", "normalisation", "scale"], "123", "scale: expected a list"),
        (["training", "normalisation", "offset"], [1, float("inf")], "offset: expected a finite number"),
        (["training", "normalisation", "integers"], 1, "integers: expected true or false"),
    ],
)
def test_a_wrong_value_is_named(path: list[str], value: Any, message: str) -> None:
    raw = json.loads(WORKUNIT.to_json())
    inner = raw
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(WorkunitError, match=message):
        Workunit.from_json(json.dumps(raw))


@given(st.sampled_from(sorted(json.loads(HEADER.to_json()))), jsons)
def test_a_header_is_decoded_or_refused_and_nothing_else(key: str, value: Any) -> None:
    raw = {**json.loads(HEADER.to_json()), key: value}
    try:
        header = UpdateHeader.from_json(json.dumps(raw))
    except WorkunitError:
        return
    got = json.loads(header.to_json())[key]
    assert got == value or got == float(value)  # a large whole number may be rounded


def test_a_header_tells_the_seconds_of_its_stages() -> None:
    told = replace(HEADER, times_s={"start": 3.25, "first": 0.5})
    assert UpdateHeader.from_json(told.to_json()) == told


@pytest.mark.parametrize("times_s", [{"lunch": 1.0}, {"start": "long"}, {"start": True}, {"start": math.inf}, [1.0], 3])
def test_a_header_with_other_stages_is_refused(times_s: object) -> None:
    with pytest.raises(WorkunitError, match="times_s"):
        UpdateHeader.from_json(json.dumps({**json.loads(HEADER.to_json()), "times_s": times_s}))
