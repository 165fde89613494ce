"""Show a run's profile as a table, as a picture, and as JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdl.errors import printable
from vcdl.profile.advice import Advice
from vcdl.profile.measured_hosts import HostClass, host_classes
from vcdl.profile.stages import MEANINGS, STAGES, RunProfile, StageSums
from vcdl.report.plot import new_figure, round_step, save
from vcdl.report.wording import align_columns, duration, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST = 0.005
"""Least fraction with a line of its own, because smaller ones cannot be acted upon."""
_COLUMNS = 6
"""Most columns next to all hosts, so that they fit a terminal; further ones are in --json."""
_INCHES = (8.0, 5.4)
_MANY = 40
"""Number of bars from which on there is no gap between them."""


def profile_lines(profile: RunProfile, advice: Advice | None) -> list[str]:
    """Return what `vcdl profile` prints: the advice, and a table of the mean seconds of a subtask in each stage.

    The table has a column for all hosts, one for each class of hosts if there are several, and one for the first and
    the last epoch.
    """
    whole, classes = profile.total(), host_classes(profile)
    lines = [advice.words(), ""] if advice is not None else []
    columns = [("all", whole)]
    if len(classes) > 1:
        columns += [(_host_names(one), profile.total(one.hosts)) for one in classes[:_COLUMNS]]
    epochs = profile.epochs
    if len(epochs) > 1:
        columns += [(f"epoch {epoch}", profile.by_epoch[epoch]) for epoch in _ends(epochs)]
    lines += _table(columns)
    lines.append("")
    lines += _remainder_lines(profile, whole)
    return lines


def beside_lines(profiles: Mapping[str, RunProfile]) -> list[str]:
    """Return a table of the mean seconds in each stage, with a column for each run.

    Args:
        profiles: Run's name → its profile.
    """
    return _table([(name, profile.total()) for name, profile in profiles.items()])


def profile_json(profile: RunProfile, advice: Advice | None) -> dict[str, Any]:
    """Return the object that `vcdl profile --json` prints."""
    classes = {_host_names(one): _figures(profile.total(one.hosts)) for one in host_classes(profile)}
    return {
        "advice": None if advice is None else advice.words(),
        "change": None if advice is None or advice.change is None else vars(advice.change),
        "wall_s": round(profile.history.wall_s, 3),
        "idle_s": round(profile.idle_s, 3),
        "all": _figures(profile.total()),
        "host_classes": classes,
        "epochs": {str(epoch): _figures(profile.by_epoch[epoch]) for epoch in profile.epochs},
        "wasted": {name: {"subtasks": n, "seconds": round(s, 3)} for name, (n, s) in sorted(profile.wasted.items())},
    }


def draw_profile(profile: RunProfile, output: Path, title: str) -> None:
    """Write a picture of a mean subtask's stages by epoch, and by class of hosts if there are several.

    Raises:
        RunFolderError: The picture cannot be written.
    """
    figure = new_figure(*_INCHES)
    classes = host_classes(profile)
    above, *below = figure.subplots(1 + (len(classes) > 1), 1, squeeze=False).flat
    _draw(above, [(str(epoch), profile.by_epoch[epoch]) for epoch in profile.epochs])
    above.set_xlabel("epoch")
    above.set_title(title)
    for axes in below:
        _draw(axes, [(_host_names(one), profile.total(one.hosts)) for one in classes])
    handles, labels = above.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", fontsize="small")
    save(figure, output)


def _draw(axes: "Axes", columns: Sequence[tuple[str, StageSums]]) -> None:
    """Draw a bar of stacked stages for each (label, sums)."""
    from matplotlib import colormaps

    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]
    places = range(len(columns))
    bottom = [0.0] * len(columns)
    for stage, colour in zip(STAGES, colours, strict=False):
        heights = [sums.mean_s(stage) for _, sums in columns]
        if not any(heights):
            continue
        axes.bar(places, heights, 0.8 if len(columns) <= _MANY else 1.0, bottom, color=colour, label=stage)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_ylabel("seconds of a subtask")
    step = round_step(len(columns))
    first = 0 if step == 1 else step - 1  # 10, 20, 30 … as long as no epoch is missing
    axes.set_xticks(places[first::step], [name for name, _ in columns][first::step])


def _table(columns: Sequence[tuple[str, StageSums]]) -> list[str]:
    """Return the lines of a table with a row for each stage and a column for each (heading, sums)."""
    rows = [["stage", *(name for name, _ in columns), ""]]
    for stage in STAGES:
        if any(sums.mean_s(stage) > _LEAST * sums.mean_s() for _, sums in columns):
            rows.append([stage, *(_cell(sums, stage) for _, sums in columns), MEANINGS[stage]])
    rows.append(["together", *(f"{sums.mean_s():.2f} s" for _, sums in columns), "from its creation to its fold"])
    rows.append(["subtasks", *(str(sums.subtasks) for _, sums in columns), ""])
    return align_columns(rows)


def _cell(sums: StageSums, stage: str) -> str:
    turnaround_s = sums.mean_s()
    return f"{sums.mean_s(stage):.2f} s {sums.mean_s(stage) / turnaround_s:4.0%}" if turnaround_s > 0 else "–"


def _remainder_lines(profile: RunProfile, whole: StageSums) -> list[str]:
    """Return the lines below the stage table: idle time, wasted subtasks, and subtasks without reported stages."""
    lines = []
    active_s = sum(host.active_s for host in profile.hosts.values())
    if active_s > 0:
        lines.append(f"{'idle':<10} {profile.idle_s / active_s:.0%} of the hosts' time: nothing to do")
    for reason, (count, seconds) in sorted(profile.wasted.items()):
        lines.append(f"{'wasted':<10} {plural(count, 'subtask')} {reason}, {duration(seconds)} of hosts' time")
    if whole.told < whole.subtasks:
        untold = whole.subtasks - whole.told
        lines.append(
            f"{'unknown':<10} {plural(untold, 'subtask')}: clients of an older version, or of implausible times"
        )
    return lines


def _figures(sums: StageSums) -> dict[str, Any]:
    stages = {stage: round(sums.mean_s(stage), 4) for stage in STAGES}
    return {"subtasks": sums.subtasks, "turnaround_s": round(sums.mean_s(), 4), "stages_s": stages}


def _host_names(one: HostClass) -> str:
    names = printable(one.hosts[0]) if len(one.hosts) == 1 else plural(len(one.hosts), "host")
    return f"{names}, {one.name}"


def _ends(epochs: Sequence[int]) -> list[int]:
    """Return the first and the last epoch."""
    return sorted({epochs[0], epochs[-1]})
