"""What happened to a job: encoded, decoded, and each fact known by its key."""

import json
from typing import Any

import pytest
from msgspec import structs

from tests.recorded_run import applied as update
from vcdl.errors import JournalError
from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    EvaluatorDied,
    Event,
    FilesChecked,
    HostConvicted,
    ResultRefused,
    RolledBack,
    RowsRewritten,
    RunFinished,
    RunPaused,
    RunReopened,
    RunStarted,
    SettingsChanged,
    StopDecided,
    StoreRestored,
    SubtaskTried,
    UpdateApplied,
    UpdateRefused,
    UpdateSuperseded,
    UploadVerified,
    VerificationEnded,
    VersionEvaluated,
    WeightsPublished,
    WorkunitCancelled,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal.rows import decode, encode

W = "digits_e0003_s017_a0_v000142"
W2 = "digits_e0003_s017_a1_v000150"


def applied(workunit: str = W, version: int = 143) -> UpdateApplied:
    return update(workunit, version)


def evaluated(version: int = 150, split: str = "validation", **changed: Any) -> VersionEvaluated:
    numbers = {"samples": 2000, "loss": 0.4, "evaluation_s": 0.2, "metrics": {"accuracy": 0.9}, **changed}
    return VersionEvaluated(version, 3, split, **numbers)


ONE_OF_EACH: list[tuple[Event, str | None]] = [
    (RunStarted(resumed=False), None),
    (RunPaused("interrupted"), None),
    (SettingsChanged("boinc.share=3"), None),
    (WorkunitCreated(W), f"created:{W}"),
    (WeightsPublished(151), "published:151"),
    (WorkunitSent(W, "worker-1", 12345), None),
    (WorkunitFailed(W, "its worker died"), f"failed:{W}"),
    (WorkunitCancelled(W), f"cancelled:{W}"),
    (ResultRefused(W, 7, "not_finite", "NaN", 4096), f"result_refused:7:{W}"),
    (applied(), "applied:e0003_s017"),
    (UpdateRefused(W, "not_finite", "NaN", 4096), f"refused:{W}"),
    (UpdateSuperseded(W, 4096), f"superseded:{W}"),
    (UploadVerified(W, "host-7", 150, 1.4, False, 12.5), f"verified:{W}"),
    (HostConvicted("host-7", W, (141, 143), (W,)), f"convicted:host-7:{W}"),
    (VerificationEnded(150), "verification_ended:150"),
    (SubtaskTried(W, "", 12.5), None),
    (EvaluationWanted(150, 3, "validation"), "wanted:validation:150"),
    (evaluated(), "evaluated:validation:150"),
    (EvaluatorDied("killed by signal 9"), None),
    (EpochClosed(3, 150), "epoch:3"),
    (RolledBack(161, 140, (141, 143), 155, 0.1, 0.9), "rolled_back:155"),
    (RolledBack(161, 140, (141, 143), 155, 0.0, 0.0, "host-7"), "rolled_back:155:host-7"),
    (StoreRestored(161, 12, lost=3), "store_restored:161"),
    (RowsRewritten(161, 36), None),
    (FilesChecked("4f7b", 12, "params_v000012.h5"), None),
    (StopDecided("epochs", 1000), None),
    (RunFinished(), None),
    (RunReopened(), None),
]


def test_the_table_has_every_kind_of_event() -> None:
    kinds = Event.__subclasses__()
    assert {type(event) for event, _ in ONE_OF_EACH} == set(kinds)
    assert len({event.kind for event, _ in ONE_OF_EACH}) == len(kinds)


@pytest.mark.parametrize(("event", "key"), ONE_OF_EACH, ids=lambda value: getattr(value, "kind", None))
def test_an_event_survives_its_json_and_has_its_key(event: Event, key: str | None) -> None:
    assert decode(event.kind, encode(event)) == event
    assert event.key == key
    assert set(json.loads(encode(event))) == set(event.__struct_fields__)


def test_two_attempts_at_a_subtask_share_the_key_of_being_applied_and_no_other() -> None:
    assert applied(W).key == applied(W2, 151).key
    assert WorkunitFailed(W, "x").key != WorkunitFailed(W2, "x").key
    assert UpdateRefused(W, "x", "y", 1).key != UpdateRefused(W2, "x", "y", 1).key


def test_half_a_pair_of_escapes_is_damage_and_a_whole_one_is_none() -> None:
    with pytest.raises(JournalError, match="the journal is damaged"):
        decode("run_finished", '{"monitor": "\\ud800"}')
    event = RunPaused("\U0001f600")
    assert decode("run_paused", encode(event)) == event


@pytest.mark.parametrize(
    "fields", ["[" * 100_000, '{"reason":' * 100_000, '{"reason": "\\u0061", "x": ' + "[" * 100_000]
)
def test_fields_nested_too_deeply_are_damage(fields: str) -> None:
    with pytest.raises(JournalError, match="the journal is damaged"):
        decode("run_paused", fields)


def test_damage_is_told_in_words_that_any_terminal_shows() -> None:
    with pytest.raises(JournalError, match="the journal is damaged") as caught:
        decode("version_evaluated", json.dumps({**structs.asdict(evaluated()), "metrics": {"\ud800" * 100: ["a"]}}))
    assert len(str(caught.value).encode()) < 1000
