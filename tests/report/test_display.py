"""The display of a run under way: plain lines without a terminal, a live display on one."""

import io
import re
from collections.abc import Sequence

import pytest
from rich.console import Console

from tests.recorded_run import BEGAN_S, FIRST_SESSION, SECOND_SESSION, WHOLE_RUN, recorded, workunit
from vcdl.journal.events import (
    EvaluationWanted,
    EvaluatorDied,
    Event,
    FilesChecked,
    Recorded,
    RolledBack,
    RowsRewritten,
    StoreRestored,
    VersionEvaluated,
    WorkunitFailed,
)
from vcdl.journal.observer import RunningTask, RunObserver, ShieldedObserver
from vcdl.report.display import LiveDisplay, PlainLines
from vcdl.report.measures import Report
from vcdl.report.progress import RunGoal, unmeasured_words

GOAL = RunGoal("demo", epochs=2, shards=2, target=0.95)


def plain(*batches: Sequence[Recorded], now_s: float = BEGAN_S) -> list[str]:
    """The lines of a run whose journal came in these batches."""
    stream = io.StringIO()
    lines = PlainLines(GOAL, stream, clock=lambda: now_s)
    for batch in batches:
        lines.events(batch)
    return stream.getvalue().splitlines()


def drawn(observer: LiveDisplay, console: Console) -> str:
    with console.capture() as capture:
        console.print(observer.render())
    return capture.get()


def live(now_s: float = BEGAN_S) -> tuple[LiveDisplay, Console]:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, highlight=False, markup=False)
    return LiveDisplay(GOAL, console, clock=lambda: now_s), console


def test_each_epoch_and_each_setback_is_one_line() -> None:
    assert plain(recorded(FIRST_SESSION)) == [
        "shard 1 of epoch 1, attempt 1: lost, the worker died (signal 9)",
        "epoch 1/2: accuracy 0.6000 (0.5000 – 0.7000), loss 0.3, in training 0.75, after 20 s",
    ]


ROLLED_BACK = RolledBack(version=5, to=2, dropped=(3, 4), collapsed=3, measured=0.1, usual=0.7)


def test_a_rollback_is_a_line_and_stays_in_the_figures() -> None:
    events = recorded([*FIRST_SESSION[:-1], (25, ROLLED_BACK)])
    assert plain(events)[-1] == (
        "the weights had collapsed (0.1 at version 3, usual 0.7): back to version 2 without 2 updates"
    )
    observer, console = live(BEGAN_S)
    observer.events(events)
    picture = drawn(observer, console)
    assert "1 time, 2 of 2 updates are dropped; the last time from version 4 to 2" in picture


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            StoreRestored(7, 2),
            "the store had lost its weights, or came back older: it is rebuilt as version 7, "
            "with 2 updates folded in again",
        ),
        (
            StoreRestored(7, 0, twice=1),
            "the store had lost its weights, or came back older: it is rebuilt as version 7, "
            "with 0 updates folded in again; "
            "1 update without a row in the journal may count twice",
        ),
        (FilesChecked("a", 5), "checked after a reboot: the store and 5 files of weights; all are whole"),
        (
            FilesChecked("a", 5, "params_v000003.h5"),
            "checked after a reboot: the store and 5 files of weights; removed as damaged: params_v000003.h5",
        ),
        (
            RowsRewritten(7, 3),
            "the store is 3 updates ahead of the journal, as when an older copy was put back: "
            "their rows are written again",
        ),
    ],
)
def test_what_was_made_again_is_a_line(event: Event, line: str) -> None:
    assert plain(recorded([*FIRST_SESSION[:-1], (25, event)]))[-1] == line


def test_a_resumed_run_tells_only_what_is_new() -> None:
    earlier, new = WHOLE_RUN[: len(FIRST_SESSION)], WHOLE_RUN[len(FIRST_SESSION) :]
    assert plain(earlier, new, now_s=BEGAN_S + 900) == [
        "resumed after 2 updates",
        "shard 1 of epoch 2, attempt 1: refused, not_finite: the weights hold NaN",
        "epoch 2/2: accuracy 0.8000, loss 0.3, in training 0.75, after 50 s",
    ]


def test_an_epoch_that_is_measured_after_the_pause_is_told_then() -> None:
    unmeasured = [event for event in FIRST_SESSION if event[0] != 22]
    late = [(1000.0, SECOND_SESSION[0][1]), (1001.0, FIRST_SESSION[14][1])]
    events = recorded([*unmeasured, *late])
    lines = plain(events[: len(unmeasured)], events[len(unmeasured) :], now_s=BEGAN_S + 900)
    assert lines == [
        "resumed after 2 updates",
        "epoch 1/2: accuracy 0.6000 (0.5000 – 0.7000), loss 0.3, in training 0.75, after 20 s",
    ]


def test_what_holds_a_run_up_is_a_line_when_it_begins_and_when_it_ends() -> None:
    stream = io.StringIO()
    observer = PlainLines(GOAL, stream)
    for why in (None, "the disk is full", "the disk is full", "no answer", None, None):
        observer.waiting_for(why)
    assert stream.getvalue().splitlines() == ["waiting: the disk is full", "waiting: no answer", "continuing"]


def test_what_holds_a_run_up_stays_on_a_live_display_until_it_goes_on() -> None:
    observer, console = live()
    observer.waiting_for("the disk is full")
    assert "demo: waiting: the disk is full …" in drawn(observer, console)
    observer.events(recorded(FIRST_SESSION))
    observer.tasks([RunningTask(workunit(2, 1), "worker-2", 0.25, BEGAN_S + 25)], waiting=3)
    assert drawn(observer, console).splitlines()[0].rstrip() == "demo: waiting: the disk is full"
    observer.waiting_for(None)
    assert "waiting: " not in drawn(observer, console)


class Broken(RunObserver):
    def phase(self, text: str) -> None:
        raise OSError(28, "No space left on device")

    def waiting_for(self, why: str | None) -> None:
        raise OSError(28, "No space left on device")

    def events(self, events: Sequence[Recorded]) -> None:
        raise ValueError("a mistake in an observer")

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        raise ValueError("a mistake in an observer")


def test_an_observer_that_fails_stops_nothing_and_hears_the_next_word() -> None:
    shielded = ShieldedObserver(Broken())
    shielded.phase("starting")
    shielded.waiting_for("the disk is full")
    shielded.events(recorded(FIRST_SESSION))
    shielded.tasks([], 0)
    stream = io.StringIO()
    working = ShieldedObserver(PlainLines(GOAL, stream))
    working.phase("starting")
    working.waiting_for("the disk is full")
    working.events(recorded(FIRST_SESSION))
    assert stream.getvalue().splitlines()[:2] == ["starting", "waiting: the disk is full"]


@pytest.mark.parametrize("evil", ["\x1b[2J\x1b]0;owned\x07", "one\ntwo\rthree", "[red]x[/red]"])
def test_what_a_client_says_cannot_drive_the_terminal(evil: str) -> None:
    failure = recorded([FIRST_SESSION[0], (5.0, WorkunitFailed(workunit(1, 1), evil))])
    (line,) = plain(failure)
    assert line.isprintable()
    observer, console = live()
    with console.capture() as capture:
        observer.events(failure)
    assert capture.get().rstrip("\n").isprintable()
    assert "[red]" not in evil or "[red]x[/red]" in capture.get()


def test_before_the_first_subtask_the_live_display_says_what_goes_on_and_for_how_long() -> None:
    now = [BEGAN_S]
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    observer = LiveDisplay(GOAL, console, clock=lambda: now[0])
    observer.phase("building the model")
    now[0] += 7
    assert "demo: building the model … 7 s" in drawn(observer, console)


def test_the_live_display_shows_the_figures_of_the_run() -> None:
    observer, console = live(now_s=BEGAN_S + 30)
    observer.events(recorded(FIRST_SESSION[:-1]))
    observer.tasks([RunningTask(workunit(2, 1), "worker-2", 0.25, BEGAN_S + 25)], waiting=3)
    text = re.sub(r"\x1b\[[0-9;]*m", "", drawn(observer, console))
    for part in (
        "epoch 2/2",
        "0/2 shards",
        "worker-2",
        "shard 1 of epoch 2",
        "0.6000 (0.5000 – 0.7000) in epoch 1, best 0.6000 in epoch 1, target 0.95",
        "1 running, 3 waiting, 2 done, 1 lost, 0 refused, 1 retried",
        "0.05 updates/s, 5 samples/s",
        "0.0 on average, 0 at most",
        "running for",
        "about 40 s left",  # two updates at one in 20 s
    ):
        assert part in text, part


@pytest.mark.parametrize("width", [30, 40, 60])
def test_a_narrow_terminal_keeps_the_label_of_every_line(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    observer = LiveDisplay(RunGoal("demo", epochs=20, shards=200), console, clock=lambda: BEGAN_S + 30)
    observer.events(recorded([*FIRST_SESSION[:-1], (25, EvaluatorDied("killed by signal 9"))]))
    observer.tasks([RunningTask(workunit(2, 1), "worker-12", 0.25, 0.0)], waiting=3)
    lines = drawn(observer, console).splitlines()
    labels = [
        "epoch 2/20", "whole run", "  worker-12", "accuracy", "loss", "subtasks", "speed", "staleness", "not measured",
    ]  # fmt: skip
    for label in [*labels, "running for"]:
        assert any(line.startswith(label) for line in lines), label
    assert max(map(len, lines)) <= width


def test_the_death_of_the_evaluator_is_a_line_and_stays_in_the_figures_until_something_is_measured() -> None:
    died = (12.0, EvaluatorDied("killed by signal 9"))
    wanted = (13.0, EvaluationWanted(2, 1, "validation"))
    assert plain(recorded([FIRST_SESSION[0], died])) == [
        "the evaluator died (killed by signal 9): training continues, and what is missing is measured later"
    ]
    report = Report.of(recorded([FIRST_SESSION[0], died, wanted]))
    words = "1 version, from version 2 on: the evaluator died (killed by signal 9) and is started again"
    assert unmeasured_words(report) == words
    measured = VersionEvaluated(2, 1, "validation", samples=10, loss=0.5, evaluation_s=0.1)
    report.follow(Recorded(99, BEGAN_S + 20, measured))
    assert report.totals.evaluator_death is None
