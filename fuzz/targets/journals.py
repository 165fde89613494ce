"""Journals: rows with anything in them, and files with damaged pages."""

import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from fuzz.mutations import as_json, mutated, mutated_json
from fuzz.target import Target, hold
from vcdl.errors import JournalError, WorkunitError
from vcdl.journal.events import (
    EpochClosed,
    EvaluationWanted,
    Event,
    HostConvicted,
    Recorded,
    RolledBack,
    RunFinished,
    RunPaused,
    RunStarted,
    StopDecided,
    UpdateApplied,
    UpdateRefused,
    UploadVerified,
    VersionEvaluated,
    WorkunitCreated,
    WorkunitFailed,
    WorkunitSent,
)
from vcdl.journal.history import JobHistory
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import kept_history
from vcdl.journal.lineage import Lineage
from vcdl.journal.packing import copy_of
from vcdl.journal.rows import decode, encode
from vcdl.report.measures import Report
from vcdl.trust.hosts import HostHistory
from vcdl.trust.kept_hosts import load_host_history


def _name(shard: int, base: int) -> str:
    return f"j_e0001_s{shard:03d}_a0_v{base:06d}"


def _applied(shard: int, version: int) -> UpdateApplied:
    return UpdateApplied(_name(shard, 0), version, 0, version - 1, 0.5, 10, 1.0, 1.5, 0.7, 1000, f"h{shard}")


_EVENTS: tuple[Event, ...] = (
    RunStarted(False),
    *(WorkunitCreated(_name(shard, 0), 3) for shard in range(4)),
    *(WorkunitSent(_name(shard, 0), f"h{shard}", 100) for shard in range(4)),
    _applied(0, 1),
    UploadVerified(_name(0, 0), "h0", 1, 0.1, True, 1.0),
    _applied(1, 2),
    UpdateRefused(_name(2, 0), "not_finite", "NaN", 10, "h2"),
    WorkunitFailed(_name(3, 0), "it died"),
    EvaluationWanted(2, 1, "validation"),
    VersionEvaluated(2, 1, "validation", 100, 0.5, 0.1, {"accuracy": 0.8}),
    HostConvicted("h1", _name(1, 0), (2,)),
    RolledBack(3, 1, (2,), 2, 0.1, 0.8, "h1"),
    EpochClosed(1, 3),
    StopDecided("epochs", 3),
    RunPaused("interrupted"),
    RunFinished(),
)


class Journals(Target):
    """An input is a JSON list of rows (time, kind, key, text of the fields)."""

    name = "journals"
    refuses = (JournalError, WorkunitError)
    words = (*tuple(f'"{event.kind}"'.encode() for event in _EVENTS), b"1e400", b"NaN", b"-1", b"null", b"[[[[")

    def seeds(self) -> Sequence[bytes]:
        rows = [[1000.0 + place, event.kind, None, encode(event)] for place, event in enumerate(_EVENTS)]
        return [json.dumps(rows).encode(), json.dumps(rows[:9]).encode()]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        rows = json.loads(dice.choice(others))
        for _ in range(dice.choice((1, 1, 2))):
            place = dice.randrange(len(rows))
            match dice.randrange(6):
                case 0:
                    del rows[place]
                    rows = rows or [[0.0, "run_started", None, "{}"]]
                case 1:
                    rows.insert(dice.randrange(len(rows) + 1), rows[place])
                case 2:
                    rows[place] = _row(mutated_json(dice, rows[place]), rows[place])
                case 3:
                    text = rows[place][3] if isinstance(rows[place][3], str) else "{}"
                    changed = mutated(dice, text.encode(errors="replace"), [b"{}"], self.words)
                    rows[place][3] = changed.decode(errors="replace")
                case _:
                    rows[place][3] = as_json(mutated_json(dice, _loads(rows[place][3]))).decode()
        return as_json(rows)

    def take(self, data: bytes) -> None:
        path = self.folder / "journal.db"
        for file in self.folder.glob("journal.db*"):
            file.unlink()
        Journal.at(path).close()
        with closing(sqlite3.connect(path)) as connection, connection:
            for row in json.loads(data):
                try:
                    connection.execute(
                        "INSERT INTO events (time_s, kind, key, fields) VALUES (?, ?, ?, ?)",
                        _row(row, [0, "", None, ""]),
                    )
                except (sqlite3.Error, OverflowError, UnicodeEncodeError):
                    continue  # no file can hold it
        with closing(Journal.read_only(path)) as journal:
            follow(journal.read())


class JournalFiles(Target):
    """The bytes of a journal's file."""

    name = "journal_files"
    refuses = (JournalError, WorkunitError)

    def seeds(self) -> Sequence[bytes]:
        path = self.folder / "seed.db"
        with closing(Journal.at(path)) as journal:
            for place, event in enumerate(_EVENTS):
                journal.append(event, time_s=1000.0 + place)
            for kept in (kept_history(journal), load_host_history(journal)):
                kept.advance()
                kept.save(at_once=True)
        return [path.read_bytes()]

    def take(self, data: bytes) -> None:
        path = self.folder / "journal.db"
        for file in self.folder.glob("journal.db*"):
            file.unlink()
        path.write_bytes(data)
        with closing(Journal.read_only(path)) as journal:
            follow(list(journal.stream()))
        with closing(Journal.at(path)) as journal:
            hold(kept_history(journal).advance().version >= 0, "a version below zero")
            hold(load_host_history(journal).advance().updates >= 0, "a number of updates below zero")
            journal.events_with_key_prefix("applied:")
            journal.newest("update_applied", 3)
            journal.append(RunPaused("again"))


def follow(events: Sequence[Recorded]) -> None:
    """Everything that is computed from a journal."""
    for recorded in events:
        hold(decode(recorded.event.kind, encode(recorded.event)) is not None, "no event")
    history, report = JobHistory.of(events), Report.of(events)
    hosts = HostHistory()
    for event in events:
        hosts.follow(event)
    lineage = Lineage.of(recorded.event for recorded in events)
    hold(history.version >= 0 or not events, "a version below zero")
    lineage.after(0)
    samples = sum(recorded.event.samples for recorded in events if isinstance(recorded.event, UpdateApplied))
    hold(report.totals.samples_trained == samples, "another number of samples")
    copy = copy_of(history)
    hold((copy.version, copy.open, copy.at_work) == (history.version, history.open, history.at_work), "another history")
    hold(repr(copy.epochs) == repr(history.epochs), "other scores")  # NaN is not equal to itself
    for figure in (report.wall_s, report.staleness_mean or 0.0):
        hold(figure == figure, "a figure that is no number")


def _row(row: Any, otherwise: list[Any]) -> list[Any]:
    """A row of four values that SQLite can hold."""
    if not isinstance(row, list):
        return otherwise
    whole = (row + otherwise[len(row) :])[:4]
    return [value if isinstance(value, str | int | float | type(None)) else json.dumps(value) for value in whole]


def _loads(text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
