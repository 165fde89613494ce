"""Curves of runs: each epoch's mean against active time, with the band from its lowest to its highest evaluation.

The form is that of figures 4 and 5 in Atre, Jha, Rao 2021.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.journal.history import EpochDetail
from vcdl.report.measures import Report

_SIZE_INCHES = (8.0, 4.8)
_DOTS_PER_INCH = 150
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's colours, which colour-blind people can tell apart."""
_MARKED_EPOCHS = 40
"""The largest number of points that get a marker each."""


@dataclass(frozen=True)
class Curve:
    """One run of the picture."""

    label: str
    epochs: tuple[EpochDetail, ...]
    is_regression: bool = False

    @classmethod
    def of(cls, label: str, report: Report) -> "Curve":
        """The curve of a run."""
        return cls(label, tuple(report.epochs), report.is_regression)


def plot_curves(curves: Sequence[Curve], output: Path, title: str, measured: str | None = None) -> None:
    """Draw curves into one picture, in the format that the suffix of `output` names, and write it atomically.

    `measured`: the label of the vertical axis; None: validation accuracy or loss of an epoch.

    Raises RunFolderError (a full disk, a read-only folder) and ValueError for a suffix that matplotlib does not know.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    unit, unit_s = _time_unit(max((curve.epochs[-1].wall_s for curve in curves if curve.epochs), default=0.0))
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        times = [detail.wall_s / unit_s for detail in curve.epochs]
        marker = "o" if len(times) <= _MARKED_EPOCHS else ""
        means = [detail.mean for detail in curve.epochs]
        axes.plot(times, means, marker=marker, markersize=3.5, linewidth=1.6, color=colour, label=curve.label)
        lowest, highest = [detail.min for detail in curve.epochs], [detail.max for detail in curve.epochs]
        axes.fill_between(times, lowest, highest, color=colour, alpha=0.2, linewidth=0)
    if not any(curve.epochs for curve in curves):
        axes.text(0.5, 0.5, "no epoch was finished", ha="center", va="center", transform=axes.transAxes)
    what = "loss" if any(curve.is_regression for curve in curves) else "accuracy"
    axes.set_title(title)
    axes.set_xlabel(f"running time ({unit})")
    axes.set_ylabel(measured or f"validation {what} (epoch's mean, min – max)")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    with folder_errors(output.parent), atomic_write(output) as temporary:
        figure.savefig(temporary, dpi=_DOTS_PER_INCH)


def _time_unit(longest_s: float) -> tuple[str, float]:
    if longest_s < 180:
        return "seconds", 1.0
    return ("minutes", 60.0) if longest_s < 3 * 3600 else ("hours", 3600.0)
