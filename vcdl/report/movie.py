"""Compute the movie of a run from its journal: which host trained what and when, what was lost, how the metric rose.

A movie is a picture of the whole run with time from left to right, which a playhead uncovers once in some twenty
seconds, however long the run took. A subtask becomes visible where the playhead is while a host works on it, and takes
the colour of its fate in the frame in which it ends. Time is active time: pauses between sessions are cut out. The
same journal gives the same movie. `movie_files` writes it.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import msgspec

from vcdl.errors import RunFolderError, printable
from vcdl.journal.events import (
    VALIDATION,
    Recorded,
    RunStarted,
    StoreRestored,
    UpdateApplied,
    VersionEvaluated,
    WorkunitSent,
)
from vcdl.journal.history import JobHistory
from vcdl.report.axes import DAY_S, round_values, time_ticks
from vcdl.report.progress import measured_words
from vcdl.report.subtask_stream import Fate, Span, SubtaskStream, by_host, side_by_side
from vcdl.report.wording import duration, group_digits
from vcdl.wire.workunit import WorkunitName

FRAMES = 200
"""Moments at which something appears: eight a second look continuous, and each takes some 150 bytes of an SVG."""
WIDTH, LEFT, RIGHT = 900, 118, 876
"""Units of the picture, and the ends of its axis of time: left of it is room for a name of 16 letters."""
_NUMBERS, CURVE_TOP, _CURVE_BOTTOM, _ROWS_TOP = 60, 98, 188, 206
"""Heights of the counters, the curve and the first host."""
COLUMN = 142
"""Width of a counter: there are six at most."""
_FOLDS = 30
"""Height of the row that shows when updates were applied."""
_NAMED, _NAME = 12, 16
"""Least height of a row with a name, as letters are that high, and most letters of it."""
_LINE, _LETTER = 19, 6.4
"""Height of a line of the legend, and the width of a letter that is 12 high in a usual sans-serif font."""
_HIGHEST, _ALL_ROWS = 22, 300
"""Most height of a row, and of all rows together, so that the picture fits a screen."""
_HOSTS = 60
"""Most rows: lower ones than 5 units show no subtasks."""
_SPANS = 8000
"""Most subtasks that are drawn: about 350 kB of an SVG, and more would be narrower than a pixel."""
_POINTS = 300
"""Most points of the curve, since the picture shows no more."""
_LANES, _RARE = 4, 0.05
"""Most lanes for a host's simultaneous subtasks, and the fraction of its subtasks that a further lane must hold: a few
overlaps would make all bars thin."""
AGAIN, INTERRUPTED, RESTORED = "again", "interrupted", "restored"
"""Kinds of lines besides a subtask's fate: a subtask that was applied at a later try, and two events of the run."""
_APPLIED, _GIVEN_AGAIN = "updates applied", "given out again"
KINDS = {
    Fate.TRAINED: ("applied", "#0072b2", "#3b9ddd"),
    AGAIN: ("applied at a later try", "#009e73", "#4fc3a1"),
    Fate.AT_WORK: ("being trained", "#a9d4f0", "#2f5169"),
    Fate.PAUSED: ("paused", "#8a9199", "#8a9199"),
    Fate.SUPERSEDED: ("overtaken by another try", "#e69f00", "#f0b840"),
    Fate.LOST: ("lost", "#d0307a", "#ff7fb0"),
    Fate.REFUSED: ("refused", "#b33a00", "#ff7a3d"),
    INTERRUPTED: ("× run interrupted", "#1b1f24", "#e7eaed"),
    RESTORED: ("× store restored", "#8a4fbf", "#c39bea"),
}
"""Kind of line → its text in the legend, and its colours on light and dark paper, as on the service's pages. The order
is that of the legend."""


class Stroke(NamedTuple):
    """A line to draw. A subtask is a short and wide one."""

    kind: str
    """Name of the line's colour."""
    width: float
    points: Sequence[tuple[float, float]]
    frame: int = 0
    """Number of the frame in which the line appears."""
    is_covered: bool = True
    """Whether the line is hidden until the playhead has passed it."""


class Label(NamedTuple):
    """A text to draw."""

    x: float
    y: float
    words: str
    """The text."""
    style: str = ""
    """`title` or `number` for their fonts; `right` or `middle` for a text that ends at `x`, or is centred there."""
    frame: int = 0
    """Number of the frame in which the text replaces the previous one at its place."""


@dataclass(frozen=True)
class Movie:
    """A movie, in units of its picture."""

    title: str
    height: float
    bottom: float
    """Lower end of the area that the playhead uncovers."""
    kinds: dict[str, int]
    """Kind → how often it occurred, whether or not it is drawn."""
    shapes: Sequence[Stroke | Label]
    """Lines and texts, in drawing order."""


def movie_of(events: Iterable[Recorded], name: str, has_workers: bool = False) -> Movie:
    """Return the movie of a run.

    Args:
        events: The whole journal, in order.
        name: The beginning of the title, such as the job's name.
        has_workers: Whether child processes of the run train the subtasks. If the run is killed, they die with it, and
            the journal has no event for their subtasks.

    Raises:
        RunFolderError: No subtask was given out yet.
    """
    recording = _Recording(has_workers)
    for recorded in events:
        recording.follow(recorded)
    return recording.movie(name)


@dataclass
class _Recording:
    """Collects the events of a run: pass each to `follow` in order, then call `movie` once."""

    has_workers: bool
    history: JobHistory = field(default_factory=JobHistory)
    stream: SubtaskStream = field(default_factory=lambda: SubtaskStream(ended=deque()))
    """The subtask stream, in active time."""
    counted: dict[str, list[float]] = field(default_factory=lambda: {_APPLIED: [], _GIVEN_AGAIN: []})
    """Label of a counter → active times at which it rose by one."""
    given: set[str] = field(default_factory=set)
    """Subtasks that a host has started."""
    again: set[tuple[str, str]] = field(default_factory=set)
    """(workunit, host) of each attempt at a subtask that a host had started before."""
    waited_s: dict[str, float] = field(default_factory=dict)
    """Workunit → seconds between its upload and its application."""
    evaluated: list[tuple[float, VersionEvaluated]] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    interrupted_s: float = 0.0
    end_s: float = 1e-3

    def follow(self, recorded: Recorded) -> None:
        history = self.history
        # A session begins although the last one neither paused nor finished, so its process was killed.
        if isinstance(recorded.event, RunStarted) and history.sessions and not (history.paused or history.finished):
            self.interrupted_s = history.wall_s
            self._mark(INTERRUPTED, history.wall_s)
        elif isinstance(recorded.event, WorkunitSent) and self.has_workers:
            self.stream.lose(recorded.event.workunit, self.interrupted_s)  # if a killed worker had it
        # Update the history first, so that `wall_s` is the active time of this event.
        history.follow(recorded)
        now_s = history.wall_s
        # In active time: pauses of hours would otherwise fill the picture.
        self.stream.follow(msgspec.structs.replace(recorded, time_s=now_s))
        match event := recorded.event:
            case WorkunitSent():
                subtask = WorkunitName.parse(event.workunit).subtask
                # By subtask, because a further attempt is a workunit of another name.
                if subtask in self.given:
                    self.again.add((event.workunit, event.host))
                    self.counted[_GIVEN_AGAIN].append(now_s)
                self.given.add(subtask)
            case UpdateApplied():
                self.counted[_APPLIED].append(now_s)
                self.waited_s[event.workunit] = (event.waited_s or 0.0) + (event.fold_s or 0.0)
            case VersionEvaluated(split=split) if split == VALIDATION:
                self.evaluated.append((now_s, event))
            case StoreRestored():
                self._mark(RESTORED, now_s)
            case _:
                pass

    def _mark(self, kind: str, now_s: float) -> None:
        """Record an event of the whole run, which is drawn as a vertical line and counted."""
        self.marks.append((now_s, kind))
        self.counted.setdefault(KINDS[kind][0].removeprefix("× "), []).append(now_s)

    def movie(self, name: str) -> Movie:
        """Return the movie of the recorded events; do not call `follow` afterwards."""
        history = self.history
        spans = self.stream.spans(None if history.finished else history.wall_s)
        if not spans:
            raise RunFolderError("no subtask was given out yet, so there is nothing to show: wait for the first")
        measured_s = [time_s for time_s, _ in self.evaluated]
        # At least a millisecond, because places are divided by it.
        self.end_s = max(chain([1e-3], (span.end_s for span in spans), measured_s, *self.counted.values()))
        found = Counter([*map(self._kind, spans), *(kind for _, kind in self.marks)])
        kinds = {kind: found[kind] for kind in KINDS if found[kind]}
        hosts = by_host(spans)
        names = sorted(hosts, key=lambda host: (len(host), host))  # host-9 before host-10
        # Spread evenly over all names, so that hosts with high numbers are shown too.
        rows = [names[row * len(names) // _HOSTS] for row in range(_HOSTS)] if len(names) > _HOSTS else names
        row_height = min(_HIGHEST, _ALL_ROWS / len(rows))
        bars = [
            bar
            for row, host in enumerate(rows)
            for bar in self._bars(hosts[host], _ROWS_TOP + row_height * row, row_height)
        ]
        step = math.ceil(len(bars) / _SPANS)
        left_out = [f"{len(rows)} of {group_digits(len(names))} hosts"] * (len(rows) < len(names))
        left_out += [f"one of {step} of their subtasks"] * (step > 1)
        bottom = _ROWS_TOP + row_height * len(rows) + _FOLDS
        legend = [*_legend(kinds, f"Shown: {' and '.join(left_out)}" if left_out else "", bottom + 46)]
        title = f"{printable(name)}: {group_digits(len(self.given))} subtasks on {group_digits(len(names))} hosts"
        title += "" if history.stop else ", under way"
        shapes = [
            Label(20, 26, title, "title"),
            *_rows(rows, row_height),
            # Each bar twice: first in the colour of work from the beginning, below the cover, then with its fate from
            # its frame on.
            *(bar._replace(kind=Fate.AT_WORK, frame=0) for bar in bars[::step]),
            *bars[::step],
            *self._counters(),
            *self._curve(),
            *self._over_time(bottom),
            *legend,
        ]
        return Movie(title, max(shape.y for shape in legend if isinstance(shape, Label)) + 14, bottom, kinds, shapes)

    def _x(self, time_s: float) -> float:
        """Return the horizontal position of an active time."""
        return LEFT + time_s / self.end_s * (RIGHT - LEFT)

    def _frame(self, time_s: float) -> int:
        """Return the number of the frame in which something at this active time appears."""
        return max(1, math.ceil(time_s / self.end_s * FRAMES))

    def _kind(self, span: Span) -> str:
        is_again = span.fate is Fate.TRAINED and (span.workunit, span.host) in self.again
        return AGAIN if is_again else span.fate

    def _bars(self, spans: Sequence[Span], top: float, height: float) -> Iterator[Stroke]:
        """Yield the bars of a host's subtasks. A bar ends with the upload, and not after its wait to be applied."""
        waits_s = [self.waited_s.get(span.workunit, 0.0) * (span.fate is Fate.TRAINED) for span in spans]
        busy = [
            replace(span, end_s=max(span.begin_s, span.end_s - wait_s))
            for span, wait_s in zip(spans, waits_s, strict=True)
        ]
        found = Counter(lane for _, lane in side_by_side(busy, _LANES))
        # Rare overlaps, such as one late subtask, must not make all bars of a host thinner.
        lanes = 1 + max(lane for lane, count in found.items() if count > _RARE * len(spans))
        wide = 0.9 * height / lanes  # leaves a gap to the next row
        for (span, lane), whole in zip(side_by_side(busy, lanes), spans, strict=True):
            x, y, kind = self._x(span.begin_s), top + wide * (lane + 0.5), self._kind(whole)
            least = 0.7 if whole.fate is Fate.TRAINED else 2.5  # a failure may be short, and readers look for it
            # Half a unit shorter, else two successive subtasks would look like one.
            end = max(x + least, self._x(span.end_s) - 0.5)
            yield Stroke(kind, wide, ((x, y), (end, y)), self._frame(whole.end_s))

    def _counters(self) -> Iterator[Label]:
        """Yield the counters above the picture: each value from the frame in which it is reached, and their labels."""
        monitor = self.history.monitor
        words = {"running time": {at: self._elapsed_text(at / FRAMES * self.end_s) for at in range(FRAMES + 1)}}
        for label, times in self.counted.items():
            words[label] = {self._frame(time_s): group_digits(number) for number, time_s in enumerate(times, 1)}
        if measured := self._finite_measures():
            values = {self._frame(time_s): measured_words(value, monitor) for time_s, value in measured}
            words[printable(monitor.name)] = {0: "–"} | values
        for column, (label, changes) in enumerate(words.items()):
            yield Label(20 + COLUMN * column, _NUMBERS + 20, label)
            for frame, number in ({0: "0"} | changes).items():
                yield Label(20 + COLUMN * column, _NUMBERS, number, "number", frame)

    def _elapsed_text(self, time_s: float) -> str:
        is_long = self.end_s > 2 * DAY_S
        return f"{time_s // DAY_S:.0f} d {time_s % DAY_S // 3600:.0f} h" if is_long else duration(time_s)

    def _finite_measures(self) -> list[tuple[float, float]]:
        """Return (active time, value of the monitor) of each evaluation with a finite value."""
        values = [(time_s, self.history.monitor.value(event)) for time_s, event in self.evaluated]
        return [(time_s, value) for time_s, value in values if math.isfinite(value)]

    def _curve(self) -> Iterator[Stroke | Label]:
        """Yield the curve of the monitor with its axis; nothing without evaluations."""
        points = self._finite_measures()
        if not points:
            return
        low, high = min(value for _, value in points), max(value for _, value in points)
        # A constant measure would divide by 0.
        margin = 0.1 * abs(low) + 1e-6 if low == high else 0.0
        low, high = low - margin, high + margin
        scale = (_CURVE_BOTTOM - CURVE_TOP) / (high - low)
        for value in round_values(low, high):
            y = _CURVE_BOTTOM - (value - low) * scale
            yield Stroke("rule", 1, ((LEFT, y), (RIGHT, y)), is_covered=False)
            yield Label(LEFT - 8, y + 4, f"{value:.4g}", "right")
        # The last point is always drawn: it is the result.
        some = [*points[:: math.ceil(len(points) / _POINTS)], points[-1]]
        curve = [(self._x(time_s), _CURVE_BOTTOM - (value - low) * scale) for time_s, value in some]
        yield Label(RIGHT, _CURVE_BOTTOM + 13, printable(self.history.monitor.name), "right")
        yield Stroke("ink", 2.5, curve)

    def _over_time(self, bottom: float) -> Iterator[Stroke | Label]:
        """Yield the lines of events of the whole run, a bar for the updates in each frame, and the axis of time."""
        for time_s, kind in self.marks:
            x = self._x(time_s)
            yield Stroke(kind, 2, ((x, CURVE_TOP - 8), (x, bottom)), self._frame(time_s))
        applied = Counter(map(self._frame, self.counted[_APPLIED]))
        wide, most = (RIGHT - LEFT) / FRAMES, max(applied.values(), default=1)
        for frame, count in applied.items():
            x, top = LEFT + (frame - 0.5) * wide, bottom - (_FOLDS - 6) * count / most
            yield Stroke(Fate.TRAINED, 0.8 * wide, ((x, bottom), (x, top)))
        yield Label(LEFT - 8, bottom - 4, "applied", "right")
        yield Stroke("rule", 1, ((LEFT, bottom), (RIGHT, bottom)), is_covered=False)
        for share, words in time_ticks(self.end_s):
            yield Label(LEFT + share * (RIGHT - LEFT), bottom + 16, words, "middle")


def _rows(hosts: Sequence[str], height: float) -> Iterator[Stroke | Label]:
    """Yield the background of the hosts' rows, and their names where there is room."""
    for row, host in enumerate(hosts if height >= _NAMED else ()):
        y, name = _ROWS_TOP + height * (row + 0.45), printable(host)
        yield Stroke("row", 0.9 * height, ((LEFT, y), (RIGHT, y)))
        yield Label(LEFT - 8, y + 4, name if len(name) <= _NAME else f"{name[: _NAME - 1]}…", "right")
    if height < _NAMED:
        yield Label(LEFT - 8, _ROWS_TOP + 12, f"{len(hosts)} hosts,", "right")
        yield Label(LEFT - 8, _ROWS_TOP + 28, "a row each", "right")


def _legend(kinds: dict[str, int], note: str, y: float) -> Iterator[Stroke | Label]:
    """Yield the legend from height `y` on: the kinds that occurred, with how often, and a note if it is not empty."""
    x = 20.0
    for kind in KINDS:
        if kind not in kinds and kind != Fate.AT_WORK:  # it appears in every movie, though not in the last frame
            continue
        words = f"{group_digits(kinds[kind])} {KINDS[kind][0]}" if kind in kinds else KINDS[kind][0]
        width = 34 + _LETTER * len(words)
        x, y = (x, y) if x + width < WIDTH else (20.0, y + _LINE)
        is_mark = kind in (INTERRUPTED, RESTORED)
        swatch = ((x + 7, y - 11), (x + 7, y + 3)) if is_mark else ((x, y - 4), (x + 14, y - 4))
        yield Stroke(kind, 2 if is_mark else 10, swatch, is_covered=False)
        yield Label(x + 20, y, words)
        x += width
    if note:
        yield Label(20, y + _LINE, note)
