"""Draw curves of runs: epochs' means over active time, with bands, as figures 4 and 5 of Atre, Jha, Rao 2021."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vcdl.files.atomic import whole_file
from vcdl.files.extras import is_installed, require
from vcdl.journal.monitor import EpochDetail
from vcdl.report.measures import Report
from vcdl.wire.task import ACCURACY, LOSS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_INCHES, _HEIGHT_INCHES = 8.0, 4.8
_ROW_INCHES = 2.6
"""Height of a row of small panels, in inches."""
_COLUMNS = 2
"""Small panels in a row, so that their labels have room."""
_DOTS_PER_INCH = 150
"""Resolution, high enough to be sharp on a screen."""
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's colours, which colour-blind people can tell apart."""
_MARKED_EPOCHS = 40
"""Most points that get a marker each, so that markers do not touch."""
_NUMBERED_EPOCHS = 12
"""Most epochs that are numbered, so that numbers do not overlap."""
_MEAN, _BAND = "mean of an epoch", "its lowest to its highest evaluation"


@dataclass(frozen=True)
class Curve:
    """One run in a picture of curves."""

    label: str
    epochs: tuple[EpochDetail, ...]
    measure: str = ACCURACY
    """The measure whose mean, min and max the epochs have."""

    @classmethod
    def of(cls, label: str, report: Report) -> "Curve":
        """Return the curve of a run; `label` is its name in the legend."""
        return cls(label, tuple(report.epochs), report.monitor.name)


def can_draw() -> bool:
    """Return whether pictures can be drawn: Matplotlib is installed."""
    return is_installed("matplotlib")


def plot_curves(curves: Sequence[Curve], output: Path, title: str, measured: str | None = None) -> None:
    """Write a picture with the curves of several runs, in the format of the file's suffix.

    Args:
        curves: The runs.
        output: The file.
        title: Its title.
        measured: Label of the large panel's vertical axis, instead of the measure's name.

    Raises:
        RunFolderError: The file cannot be written.
        ValueError: Matplotlib does not know the suffix.
        GridError: Matplotlib is not installed.
    """
    save(figure_of(curves, title, measured), output)


def save(figure: "Figure", output: Path) -> None:
    """Write a picture atomically, in the format of the suffix. Raises RunFolderError, or ValueError for the suffix."""
    with whole_file(output) as temporary:
        figure.savefig(temporary, dpi=_DOTS_PER_INCH)


def new_figure(
    width: float, height: float, layout: "Literal['constrained', 'tight'] | None" = "constrained"
) -> "Figure":
    """Return an empty picture. Raises GridError if Matplotlib is not installed.

    Args:
        width: Its width in inches.
        height: Its height in inches.
        layout: Matplotlib's layout engine; None if the caller places the axes.
    """
    require("plot", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def figure_of(curves: Sequence[Curve], title: str, measured: str | None = None) -> "Figure":
    """Return the picture of `plot_curves`: the monitored metric in a large panel, other metrics in small ones."""
    further = _further_measures(curves)
    rows = math.ceil(len(further) / _COLUMNS)
    figure = new_figure(_WIDTH_INCHES, _HEIGHT_INCHES + rows * _ROW_INCHES)
    grid = figure.add_gridspec(1 + rows, _COLUMNS, height_ratios=[_HEIGHT_INCHES, *([_ROW_INCHES] * rows)])
    # One unit for all curves, chosen for the longest, because they share the axis.
    unit, unit_s = _time_unit(max((curve.epochs[-1].wall_s for curve in curves if curve.epochs), default=0.0))
    axes = figure.add_subplot(grid[0, :])
    _draw_judged(axes, curves, unit_s)
    axes.set_title(title)
    if measured is not None:
        axes.set_ylabel(measured)
    if len(curves) == 1:
        _number_epochs(axes, curves[0], unit_s)
    panels = []
    for place, name in enumerate(further):
        panels.append(figure.add_subplot(grid[1 + place // _COLUMNS, _columns(place, len(further))]))
        _draw_measure(panels[-1], curves, name, unit_s)
    for panel in (axes, *panels):
        panel.set_xlabel(f"running time ({unit})")
        if not _starts_late(curves):
            panel.set_xlim(left=0)
        panel.grid(alpha=0.3)
    return figure


def _draw_judged(axes: "Axes", curves: Sequence[Curve], unit_s: float) -> None:
    """Draw the monitored metric: the means of epochs, and bands from the lowest to the highest evaluation of each."""
    is_single = len(curves) == 1
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        times = [detail.wall_s / unit_s for detail in curve.epochs]
        means = [detail.mean for detail in curve.epochs]
        axes.plot(times, means, **_marks(curve), linewidth=1.6, color=colour, label=_MEAN if is_single else curve.label)
        lowest, highest = [detail.min for detail in curve.epochs], [detail.max for detail in curve.epochs]
        band = _BAND if is_single and lowest != highest else None
        axes.fill_between(times, lowest, highest, color=colour, alpha=0.2, linewidth=0, label=band)
    if not any(curve.epochs for curve in curves):
        # A run that was stopped in its first epoch leaves a picture too, which says so.
        axes.text(0.5, 0.5, "no epoch was finished", ha="center", va="center", transform=axes.transAxes)
        return
    axes.set_ylabel(f"validation {curves[0].measure}" + ("" if is_single else " (epoch's mean, min – max)"))
    axes.legend(loc="best")


def _number_epochs(axes: "Axes", curve: Curve, unit_s: float) -> None:
    """Number the epochs of a run along the top, at their ends: each, or every 2nd, 5th, … if there are many."""
    if curve.epochs:
        step = round_step(curve.epochs[-1].epoch)
        numbered = [detail for detail in curve.epochs if detail.epoch % step == 0]
        # A second axis: epochs are not evenly spaced in time.
        top = axes.secondary_xaxis("top")
        top.set_xticks([detail.wall_s / unit_s for detail in numbered], [str(detail.epoch) for detail in numbered])
        top.set_xlabel("epoch")


def round_step(count: int) -> int:
    """Return the smallest step of 1, 2, 5, 10, 20, … that numbers at most _NUMBERED_EPOCHS of `count` places."""
    steps = (int(digit + "0" * zeros) for zeros in range(9) for digit in "125")
    return next(step for step in steps if count <= step * _NUMBERED_EPOCHS)


def _starts_late(curves: Sequence[Curve]) -> bool:
    """Return whether the first epoch took more than half of the time: from 0 the picture would be mostly blank."""
    ends_s = [detail.wall_s for curve in curves for detail in curve.epochs]
    return bool(ends_s) and min(ends_s) > max(ends_s) / 2


def _columns(place: int, panels: int) -> slice:
    """Return the columns of the small panel with number `place`, from 0, of `panels`; the last one fills its row."""
    begin = place % _COLUMNS
    return slice(begin, None if place == panels - 1 else begin + 1)


def _marks(curve: Curve) -> dict[str, Any]:
    """Return Matplotlib's settings for a marker at each epoch, or for none if there are many epochs.

    Without a marker, a curve with a single epoch would be invisible.
    """
    return {"marker": "o" if len(curve.epochs) <= _MARKED_EPOCHS else "", "markersize": 3.5}


def _further_measures(curves: Sequence[Curve]) -> list[str]:
    """Return the measures for the small panels: the loss first, even if runs are judged by it, then the unjudged ones.

    The panel of the loss also shows the training loss.
    """
    names = dict.fromkeys(name for curve in curves for detail in curve.epochs for name in detail.measures)
    judged = {curve.measure for curve in curves} - {LOSS}
    return sorted(names.keys() - judged, key=lambda name: name != LOSS)


def _draw_measure(axes: "Axes", curves: Sequence[Curve], name: str, unit_s: float) -> None:
    """Draw one metric of all curves; for the loss also the training loss that clients report, as a dashed line."""
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        times = [detail.wall_s / unit_s for detail in curve.epochs]
        values = [detail.measures.get(name, math.nan) for detail in curve.epochs]
        # Only the first curve is in the legend, because colours mean runs in all panels and the legend explains the
        # dashes.
        validation, training = ("validation", "training") if number == 0 else (None, None)
        axes.plot(times, values, **_marks(curve), linewidth=1.4, color=colour, label=validation)
        if name == LOSS:
            reported = [math.nan if detail.train_loss is None else detail.train_loss for detail in curve.epochs]
            axes.plot(times, reported, "--", **_marks(curve), linewidth=1.2, color=colour, label=training)
    axes.set_ylabel(name)
    if name == LOSS:
        axes.legend(loc="best")


def _time_unit(longest_s: float) -> tuple[str, float]:
    """Return the unit for an axis of this many seconds, and the seconds of one."""
    if longest_s < 180:
        return "seconds", 1.0
    return ("minutes", 60.0) if longest_s < 3 * 3600 else ("hours", 3600.0)
