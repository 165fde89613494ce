"""Draw a job's subtask stream as SVG: a row for each host, with a bar for each subtask that the host had."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vcdl.errors import printable
from vcdl.report.subtask_stream import Fate, Span, by_host, side_by_side
from vcdl.report.wording import duration
from vcdl.web.pictures import WIDTH, stretched_svg

_HOSTS = 24
"""Most hosts in the stream, the most recently active ones, because more rows would not fit a screen."""
_LANES = 4
"""Most lanes of a host's row, for subtasks that overlap in time; more would be too thin to read."""
_IDLE = 0.08
"""Width of the strip for the time since the last event, which may be days, as a fraction of the picture before it."""
_FATES = (Fate.TRAINED, Fate.AT_WORK, Fate.PAUSED, Fate.SUPERSEDED, Fate.LOST, Fate.REFUSED)
"""Fates in the order in which they are drawn: important ones cover others."""
_MEANINGS = {Fate.SUPERSEDED: " (another copy came first)"}
"""Words of the legend for fates that their names do not explain."""


@dataclass(frozen=True)
class StreamPicture:
    """A picture of the subtask stream."""

    rows: list[tuple[str, Markup]]
    """Rows of the picture: the host, and its subtasks."""
    left: str
    right: str
    """Labels of the two ends of the time axis."""
    counts: list[tuple[str, str]]
    """Legend: the CSS class of each fate that occurs, and a phrase with its number of subtasks."""
    left_out: int
    """Number of hosts that were left out because only `_HOSTS` rows are drawn."""


def stream_picture(
    spans: Sequence[Span], end_s: float, right: str = "now", is_idle: bool = False
) -> StreamPicture | None:
    """Draw when each host worked on which subtasks: a row for each host, a bar for each subtask.

    Args:
        spans: The subtasks, each with its host, its beginning and end, and its fate.
        end_s: Time at the right end, in seconds on the clock of the spans.
        right: The label of the right end.
        is_idle: Append a strip of fixed width, which means that nothing has happened since `end_s`.

    Returns:
        The picture with the `_HOSTS` most recently active hosts, or None without subtasks.
    """
    if not spans:
        return None
    hosts = by_host(spans)
    begin_s = min(span.begin_s for span in spans)
    last = sorted(hosts, key=lambda host: max(span.end_s for span in hosts[host]), reverse=True)[:_HOSTS]
    width_s = max(end_s - begin_s, 1e-3)
    whole_s = width_s * (1 + _IDLE * is_idle)
    found = {fate: sum(span.fate is fate for span in spans) for fate in Fate}
    return StreamPicture(
        rows=[
            (printable(host), _stream_row(hosts[host], begin_s, width_s, whole_s))
            for host in sorted(last, key=lambda host: (len(host), host))  # host-9 before host-10
        ],
        left=f"{duration(width_s)} {'ago' if right == 'now' else 'before'}",
        right=right,
        counts=[
            (_class(fate), f"{found[fate]} {fate.value}{_MEANINGS.get(fate, '')}") for fate in _FATES if found[fate]
        ]
        + [("idle", "nothing happened")] * is_idle,
        left_out=len(hosts) - len(last),
    )


def _stream_row(spans: list[Span], begin_s: float, width_s: float, whole_s: float) -> Markup:
    placed = [*side_by_side(spans, _LANES)]
    height = 24 / (1 + max(lane for _, lane in placed))
    shapes: defaultdict[Fate, list[str]] = defaultdict(list)
    for span, lane in placed:
        x = (span.begin_s - begin_s) / whole_s * WIDTH
        # Never narrower than 1.5 units: a subtask of a second would be invisible in a run of a day.
        width = max((span.end_s - span.begin_s) / whole_s * WIDTH - 1, 1.5)
        shapes[span.fate].append(f"M{x:.1f} {lane * height:.3g}h{width:.1f}v{height * 0.9:.3g}h-{width:.1f}z")
    paths = "".join(f'<path class="{_class(fate)}" d="{"".join(shapes[fate])}"/>' for fate in _FATES if shapes[fate])
    if whole_s > width_s:
        x = width_s / whole_s * WIDTH
        paths += f'<path class="idle" d="M{x:.1f} 0H{WIDTH}V24H{x:.1f}z"/>'
    words = ", ".join(f"{len(shapes[fate])} {fate.value}" for fate in _FATES if shapes[fate])
    return stretched_svg(paths, WIDTH, 24, words, "lane")


def _class(fate: Fate) -> str:
    return fate.value.replace(" ", "-")
