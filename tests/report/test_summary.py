"""summary.json: exactly the documented keys and types, and figures that are those of the journal."""

import json
import math
import re
from typing import Any

import pytest

from tests.places import DOCS
from tests.recorded_run import FIRST_SESSION, WHOLE_RUN, numbered, recorded
from vcdl.journal.events import EpochClosed, Event, RunStarted, StopDecided, VersionEvaluated
from vcdl.report.measures import Report
from vcdl.report.summary import summary_of

DOCUMENT = (DOCS / "summary.md").read_text(encoding="utf-8")
TYPES: dict[str, Any] = {
    "text": str, "whole number": int, "number": int | float, "list": list, "object": dict, "null": type(None),
}  # fmt: skip


def documented() -> dict[str, str]:
    """Key path → type, from the document's table."""
    return dict(re.findall(r"^\| `([a-z_.\[\]]+)` \| ([a-z, ]+?) \|", DOCUMENT, flags=re.MULTILINE))


def flat(value: Any, at: str = "") -> dict[str, list[Any]]:
    """Key path → the values found there; `[]` stands for every item of a list. What a job names is one value."""
    found: dict[str, list[Any]] = {}
    if isinstance(value, dict) and documented().get(at, "") not in ("object", "object, null"):
        for key, item in value.items():
            for path, items in flat(item, f"{at}.{key}" if at else key).items():
                found.setdefault(path, []).extend(items)
        return found
    found[at] = [value]
    for item in value if isinstance(value, list) else ():
        for path, items in flat(item, f"{at}[]").items():
            found.setdefault(path, []).extend(items)
    return found


@pytest.mark.parametrize("events", [WHOLE_RUN, recorded(FIRST_SESSION), []], ids=["whole", "paused", "not begun"])
def test_keys_and_types_are_the_documented_ones(events: Any) -> None:
    types = documented()
    found = flat(summary_of("demo", Report.of(events)))
    missing_in_short_runs = {key for key in types if "[]" in key} if not found["epochs_detail"][0] else set()
    assert set(found) == set(types) - missing_in_short_runs
    for key, values in found.items():
        allowed = tuple(TYPES[name] for name in types[key].split(", "))
        for value in values:
            assert any(isinstance(value, kind) for kind in allowed), (key, value)


def test_the_figures_are_those_of_the_journal() -> None:
    summary = summary_of("demo", Report.of(WHOLE_RUN))
    assert summary["job"] == "demo"
    assert summary["stop_reason"] == "epochs"
    assert summary["epochs"] == 2
    assert summary["updates_applied"] == 4
    assert summary["workunits"] == {"created": 6, "applied": 4, "failed": 1, "refused": 1, "retried": 2}
    assert summary["accuracy"] == {"validation": 0.79, "test": 0.77, "best_validation": 0.8}
    assert summary["monitor"] == {"name": "accuracy", "mode": "max"}
    epoch = {"epoch": 2, "mean": 0.8, "min": 0.8, "max": 0.8, "wall_s": 50, "train_loss": 0.75}
    assert summary["epochs_detail"][1] == {**epoch, "metrics": {"loss": 0.3, "accuracy": 0.8}}
    assert summary["metrics"]["validation"] == {"loss": 0.3, "accuracy": 0.79}
    assert summary["metrics"]["test"] == {"loss": 0.3, "accuracy": 0.77}
    assert summary["metrics"]["best_validation"] == {"loss": 0.3, "accuracy": 0.8}
    assert summary["best_epoch"] == 2
    assert summary["wall_s"] == 55
    assert summary["samples_trained"] == 380
    assert summary["staleness"] == {"mean": 0.5, "max": 2}
    assert summary["bytes"] == {"down": 10700, "up": 5850}


def test_a_diverged_regression_has_no_nan_and_no_accuracy_in_its_summary() -> None:
    events = recorded(
        [
            (0, RunStarted(False)), (1, EpochClosed(1, 1)),
            (1, VersionEvaluated(version=1, epoch=1, split="validation", samples=5, loss=math.nan, evaluation_s=0.1)),
        ],
    )  # fmt: skip
    summary = summary_of("demo", Report.of(events))
    assert summary["epochs_detail"][0]["mean"] is None
    assert summary["accuracy"] == {"validation": None, "test": None, "best_validation": None}
    json.dumps(summary, allow_nan=False)


def test_updates_that_were_overwritten_are_those_of_the_last_word() -> None:
    events: list[Event] = [RunStarted(resumed=False), EpochClosed(1, 4, lost=1), EpochClosed(2, 9, lost=3)]
    assert summary_of("demo", Report.of(numbered(events)))["updates_lost"] == 3
    assert summary_of("demo", Report.of(numbered([*events, StopDecided("epochs", 11, lost=4)])))["updates_lost"] == 4
