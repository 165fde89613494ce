"""Draw charts of jobs as SVG: curves, comparisons, and the histogram of staleness.

A chart fills the available width: its shapes are stretched, but its labels must not be. So an outer picture without a
scale contains the labels, at percentages, and an inner picture with the stretched shapes. No script is needed: the text
that a browser shows when the pointer is near a point is the title of an invisible column around the point.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from vcdl.errors import printable
from vcdl.journal.monitor import EpochDetail
from vcdl.report.axes import Tick, epoch_ticks, round_values, time_ticks
from vcdl.report.measures import Report
from vcdl.report.progress import band_words
from vcdl.report.wording import duration, plural
from vcdl.wire.task import LOSS

WIDTH, _HEIGHT = 1000, 200
"""Width and height of a chart in its own units; a picture is stretched to the available room."""
_POINTS = 300
"""Most points of a line, since a screen shows no more; with more epochs, neighbouring ones are merged."""
_DOTS = 60
"""Most points with markers, so that markers do not touch."""
_COLUMNS = 100
"""Most columns that show a point's values: narrower ones are hard to hit with a pointer, and these take 17 kB."""
_BARS = 12
"""Most bars of the histogram of staleness; with more, the labels under every second bar would be too close."""
COLOURS = 6
"""Colours of the lines of a comparison, as in style.css; further lines repeat them: more would look too similar."""


@dataclass(frozen=True)
class Chart:
    """A chart with its title and legend."""

    title: str
    svg: Markup
    keys: Sequence[tuple[str, str]] = ()
    """Legend: the CSS class of each kind of shape, and its meaning."""


@dataclass(frozen=True)
class _Point:
    x: float
    """Place on the horizontal axis: seconds of training, or the epoch."""
    mean: float
    low: float
    high: float
    """Range of the values of the epoch's evaluated versions."""
    words: str
    """Text that a browser shows for the point."""


def sparkline(course: Sequence[float], monitor: str) -> Markup:
    """Return a small curve without axes for the list of jobs; empty if fewer than two values are finite.

    Args:
        course: The mean value of each epoch.
        monitor: Name of the metric, for screen readers.
    """
    # A diverged epoch has NaN or infinity, which would make every coordinate of the path invalid.
    values = [value for value in course if math.isfinite(value)]
    if len(values) < 2:
        return Markup("")
    low, high = min(values), max(values)
    step = 100 / (len(values) - 1)
    places = [f"{i * step:.0f} {_scale(value, low, high, 18) + 1:.1f}" for i, value in enumerate(values)]
    words = f"{monitor}, {len(values)} epochs: from {values[0]:.4g} to {values[-1]:.4g}"
    return stretched_svg(f'<path class="line" d="M{"L".join(places)}"/>', 100, 20, words, "spark")


def measure_chart(report: Report, by_epoch: bool = False) -> Chart | None:
    """Return the curve of the metric by which a job is judged, or None before the first finite value.

    The best epoch is marked. If several versions of an epoch were evaluated, a band shows their range.

    Args:
        report: The job's figures.
        by_epoch: Draw the curve over epochs rather than over seconds of training.
    """
    monitor, best = report.monitor, report.best_epoch
    points = [
        _Point(
            _place(one, by_epoch),
            one.mean,
            one.min,
            one.max,
            f"epoch {one.epoch}: {monitor.name} {band_words(one, monitor)} after {duration(one.wall_s)}"
            f"{', the best' if best is not None and one.epoch == best.epoch else ''}",
        )
        for one in report.epochs
        if all(map(math.isfinite, (one.mean, one.min, one.max)))
    ]
    mark = None if best is None else (_place(best, by_epoch), best.mean)
    keys = [] if best is None else [("best", f"best: epoch {best.epoch}")]
    return _chart(monitor.name, points, [], monitor.name == LOSS, by_epoch, keys, mark)


def loss_chart(report: Report, by_epoch: bool = False) -> Chart | None:
    """Return the curves of the validation loss and of the clients' mean training loss.

    Args:
        report: The job's figures.
        by_epoch: Draw the curves over epochs rather than over seconds of training.

    Returns:
        None if the loss was never measured, or if `measure_chart` already shows all of it: the job is judged by its
        loss, and no client reports a training loss.
    """
    points, trained = [], []
    for one in report.epochs:
        value, reported = one.measures.get(LOSS, math.nan), one.train_loss
        is_reported = reported is not None and math.isfinite(reported)
        if reported is not None and is_reported:
            trained.append((_place(one, by_epoch), reported))
        if math.isfinite(value):
            too = f", {reported:.4g} in training" if is_reported else ""
            words = f"epoch {one.epoch}: loss {value:.4g} in validation{too} after {duration(one.wall_s)}"
            points.append(_Point(_place(one, by_epoch), value, value, value, words))
    if report.monitor.name == LOSS and not trained:
        return None
    keys = [("line", "in validation"), ("second", "in training")] if trained else []
    return _chart("loss", points, trained, True, by_epoch, keys)


def _place(detail: EpochDetail, by_epoch: bool) -> float:
    return detail.epoch if by_epoch else detail.wall_s


def _chart(
    title: str,
    points: list[_Point],
    beside: list[tuple[float, float]],
    is_loss: bool,
    by_epoch: bool,
    keys: list[tuple[str, str]],
    mark: tuple[float, float] | None = None,
) -> Chart | None:
    if not points:
        return None
    has_band = any(point.low < point.high for point in points)
    points = _merge_points(points)
    values = [*(value for point in points for value in (point.low, point.high)), *(value for _, value in beside)]
    scale = _Scale.of(values, max(point.x for point in points), is_loss, by_epoch)
    shapes = "" if mark is None else f'<path class="best" d="M{scale.at(*mark)}h0"/>'
    if has_band:
        upper = [scale.at(point.x, point.high) for point in points]
        lower = [scale.at(point.x, point.low) for point in reversed(points)]
        shapes += f'<path class="band" d="M{"L".join([*upper, *lower])}Z"/>'
        keys = [*keys, ("band", "from the lowest to the highest version")]
    shapes += scale.line("second", beside) if len(beside) > 1 else ""
    shapes += scale.line("line", [(point.x, point.mean) for point in points])
    shapes += _columns([(scale.across(point.x), point.words) for point in points])
    words = f"{title} over {scale.length}: from {points[0].mean:.4g} to {points[-1].mean:.4g}"
    return scale.chart(title, shapes, words, keys)


def comparison_chart(measure: str, reports: Mapping[str, Report], by_epoch: bool = False) -> Chart | None:
    """Return a chart with a metric's curves of several runs, or None if no run has measured it.

    Args:
        measure: Name of the metric, or of the loss.
        reports: The runs' figures, keyed by the runs' names.
        by_epoch: Draw the curves over epochs rather than over seconds of training.
    """
    lines = {
        name: [
            (_place(one, by_epoch), one.measures[measure], one.epoch)
            for one in report.epochs
            if math.isfinite(one.measures.get(measure, math.nan))
        ]
        for name, report in reports.items()
    }
    points = [point for line in lines.values() for point in line]
    if not points:
        return None
    scale = _Scale.of([value for _, value, _ in points], max(x for x, *_ in points), measure == LOSS, by_epoch)
    shapes, keys, words = "", [], defaultdict[float, list[str]](list)
    for number, (name, line) in enumerate(lines.items()):
        if line:
            kind = f"line run{number % COLOURS}"
            shapes += scale.line(kind, [(x, value) for x, value, _ in line])
            keys.append((kind, printable(name)))
        for x, value, epoch in line:
            words[x].append(f"{printable(name)}, epoch {epoch}: {measure} {value:.4g}")
    shapes += _columns([(scale.across(x), "; ".join(said)) for x, said in sorted(words.items())])
    return scale.chart(measure, shapes, f"{measure} of {plural(len(keys), 'job')} over {scale.length}", keys)


@dataclass(frozen=True)
class _Scale:
    """The axes of a chart, which convert values to coordinates: `low` to `high` upwards, 0 to `last` to the right."""

    low: float
    high: float
    last: float
    is_log: bool
    by_epoch: bool

    @classmethod
    def of(cls, values: Sequence[float], last: float, is_loss: bool, by_epoch: bool) -> "_Scale":
        """Return the axes that contain the given values.

        Args:
            values: Everything that is drawn.
            last: Right end of the horizontal axis: seconds of training, or an epoch.
            is_loss: Use a logarithmic scale if all values are above 0.
            by_epoch: Label the horizontal axis in epochs rather than in time.
        """
        low, high = min(values), max(values)
        is_log = is_loss and low > 0
        # A constant course would divide by 0; a margin puts it into the middle.
        if low == high:
            low, high = low - abs(low) * 0.1 - (0 if is_log else 1e-6), high + abs(high) * 0.1 + 1e-6
        return cls(low, high, last or 1.0, is_log, by_epoch)

    @property
    def length(self) -> str:
        return plural(round(self.last), "epoch") if self.by_epoch else f"{duration(self.last)} of training"

    def share(self, value: float) -> float:
        scaled: Callable[[float], float] = math.log if self.is_log else float
        return (scaled(value) - scaled(self.low)) / (scaled(self.high) - scaled(self.low))

    def across(self, x: float) -> float:
        return x / self.last * WIDTH

    def at(self, x: float, value: float) -> str:
        return f"{self.across(x):.1f} {(1 - self.share(value)) * _HEIGHT:.1f}"

    def line(self, kind: str, points: Sequence[tuple[float, float]]) -> str:
        """Return the SVG of a line through points (x, value), with a dot at each point of a main line if there are few.

        Args:
            kind: CSS class of the line; main lines have `line` in it.
            points: The points, from left to right.
        """
        shape = f'<path class="{kind}" d="M{"L".join(self.at(*point) for point in points)}"/>'
        if "line" not in kind or len(points) > _DOTS:
            return shape
        dots = kind.replace("line", "dot")
        return shape + "".join(f'<path class="{dots}" d="M{self.at(*point)}h0"/>' for point in points)

    def chart(self, title: str, shapes: str, words: str, keys: Sequence[tuple[str, str]]) -> Chart:
        up = [Tick(self.share(value), f"{value:.4g}") for value in round_values(self.low, self.high, self.is_log)]
        across = epoch_ticks(self.last) if self.by_epoch else time_ticks(self.last)
        return Chart(f"{title}, logarithmic" if self.is_log else title, _add_axes(shapes, words, up, across), keys)


def _columns(places: list[tuple[float, str]]) -> str:
    """Return invisible columns that show a text under the pointer, each reaching halfway to its neighbours.

    Args:
        places: Horizontal coordinate and text of each point; at most `_COLUMNS` of them get a column.
    """
    some = places[:: math.ceil(len(places) / _COLUMNS)]
    ends = [0.0, *((one + other) / 2 for (one, _), (other, _) in pairwise(some)), float(WIDTH)]
    return "".join(
        f'<path class="column" d="M{left:.1f} 0H{right:.1f}V{_HEIGHT}H{left:.1f}Z">'
        f"<title>{escape(words)}</title></path>"
        for (_, words), (left, right) in zip(some, pairwise(ends), strict=True)
    )


def _add_axes(shapes: str, words: str, up: Iterable[Tick], across: Iterable[Tick]) -> Markup:
    """Return the whole picture: a chart's shapes, with grid lines and labels.

    Args:
        shapes: SVG of the shapes.
        words: Description for screen readers.
        up: Ticks of the vertical axis.
        across: Ticks of the horizontal axis.
    """
    lines = "".join(f'<path class="grid" d="M0 {(1 - tick.share) * _HEIGHT:.1f}H{WIDTH}"/>' for tick in up)
    labels = "".join(
        f'<text class="up" x="0" y="{100 * (1 - tick.share):.1f}%" dx="-6" dy=".3em">{tick.words}</text>' for tick in up
    )
    labels += "".join(
        f'<text class="across" x="{100 * tick.share:.1f}%" y="100%" dy="1.3em">{tick.words}</text>' for tick in across
    )
    inner = f'<svg role="none" viewBox="0 0 {WIDTH} {_HEIGHT}" preserveAspectRatio="none">{lines}{shapes}</svg>'
    return Markup(f'<svg class="chart" role="img" aria-label="{escape(words)}">{inner}{labels}</svg>')


def _merge_points(points: list[_Point]) -> list[_Point]:
    """Merge neighbouring points so that at most `_POINTS` remain.

    A merged point has the mean of their values and their whole range, and place and text of the last one.
    """
    size = math.ceil(len(points) / _POINTS)
    groups = (points[begin : begin + size] for begin in range(0, len(points), size))
    return [
        _Point(
            group[-1].x,
            sum(point.mean for point in group) / len(group),
            min(point.low for point in group),
            max(point.high for point in group),
            group[-1].words,
        )
        for group in groups
    ]


def staleness_chart(staleness: Iterable[int], hosts: int) -> Chart | None:
    """Return a histogram of the staleness of recent updates, or None before the first update.

    Args:
        staleness: The staleness of each update.
        hosts: Number of hosts, up to which staleness is usual.
    """
    values = sorted(staleness)
    if not values:
        return None
    size = max(1, math.ceil((values[-1] + 1) / _BARS))
    bars = [0] * (values[-1] // size + 1)
    for value in values:
        bars[value // size] += 1
    width, most = WIDTH / len(bars), max(bars)
    shapes = "".join(
        f'<path class="bar" d="M{number * width + 2:.1f} {_HEIGHT}v-{count / most * _HEIGHT:.1f}'
        f'h{width - 4:.1f}V{_HEIGHT}z">'
        f"<title>{_range(number * size, size)}: {plural(count, 'update')}</title></path>"
        for number, count in enumerate(bars)
        if count
    )
    usual = f", up to {hosts} is usual for {plural(hosts, 'host')}" if hosts else ""
    words = (
        f"staleness of the last {plural(len(values), 'update')}, how many others came in between: half have "
        f"{values[len(values) // 2]} or less{usual}; the largest is {values[-1]}"
    )
    across = [Tick((number + 0.5) / len(bars), str(number * size)) for number in range(0, len(bars), 2)]
    return Chart(words, _add_axes(shapes, words, [Tick(0.0, "0"), Tick(1.0, str(most))], across))


def _range(begin: int, size: int) -> str:
    return f"staleness {begin}" if size == 1 else f"staleness {begin} to {begin + size - 1}"


def _scale(value: float, low: float, high: float, height: float) -> float:
    """Return a value's distance from the top of a picture of this height; constant values are in the middle."""
    return height / 2 if high == low else height - (value - low) / (high - low) * height


def stretched_svg(shapes: str, width: float, height: float, words: str, kind: str) -> Markup:
    """Return a picture that stretches to the available room.

    Args:
        shapes: SVG of the shapes.
        width: Width of the picture in the shapes' units.
        height: Height of the picture in the shapes' units.
        words: Description for screen readers.
        kind: CSS class of the picture.
    """
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(words)}">{shapes}</svg>'
    )
