"""An experiment's results on disk: a report, the figures as CSV and JSON, a picture."""

import csv
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.experiments.comparison import Comparison, Row
from benchmarks.experiments.experiment import Experiment
from benchmarks.experiments.measured import RunFigures
from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.journal.monitor import EpochDetail
from vcdl.report.plot import Curve, plot_curves
from vcdl.report.summary import as_json
from vcdl.report.wording import plural, size
from vcdl.wire.task import ACCURACY, LOSS

_COLUMNS = (
    *("variant", "epochs", "seed", "epoch", "virtual_s"),
    *("validation", "validation_min", "validation_max", "test", "stop_reason"),
)


@dataclass(frozen=True)
class ResultFiles:
    """The paths of the four files."""

    folder: Path
    name: str

    @property
    def report(self) -> Path:
        return self.folder / f"{self.name}.md"

    @property
    def data(self) -> Path:
        return self.folder / f"{self.name}.csv"

    @property
    def figures(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def picture(self) -> Path:
        return self.folder / f"{self.name}.png"


def write_results(
    files: ResultFiles, experiment: Experiment, comparison: Comparison, runs: Sequence[RunFigures], command: str
) -> None:
    """Write all four files, each whole or not at all. Raises RunFolderError."""
    with folder_errors(files.data.parent), atomic_write(files.data) as temporary:
        _write_data(temporary, runs)
    with folder_errors(files.figures.parent), atomic_write(files.figures) as temporary:
        temporary.write_text(as_json({"command": command, **asdict(comparison)}), encoding="utf-8")
    plot_curves(_curves(runs), files.picture, experiment.title, f"{_split(runs)} (mean of the seeds ± spread)")
    write_report(files, experiment, table(comparison), "Every run and epoch", command)


def write_report(files: ResultFiles, experiment: Experiment, body: Sequence[str], data: str, command: str) -> None:
    """Write the page that shows an experiment; `data` describes the content of the CSV beside it.

    Raises RunFolderError.
    """
    lines = [
        f"# {experiment.title}",
        "",
        experiment.about,
        "",
        *body,
        "",
        *([f"![the figures above, drawn]({files.picture.name})", ""] if files.picture.exists() else ()),
        f"{data}: [{files.data.name}]({files.data.name}). Written by:",
        "",
        "```text",
        command,
        "```",
        "",
    ]
    with folder_errors(files.report.parent), atomic_write(files.report) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")


def table(comparison: Comparison) -> list[str]:
    """The table as lines of Markdown."""
    what = "loss" if comparison.is_regression else "accuracy"
    head = ["", "epochs", what, "virtual time"]
    has_control = comparison.control is not None
    if has_control:
        head[3:3] = [f"against {comparison.control}"]
        head += [f"reaches {_value(comparison, comparison.goal)} after", "of its time"]
    if comparison.shows_bytes:
        head += ["down, a subtask", "up"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in comparison.rows:
        broken = f" ({row.given_up} of {row.seeds} broke off)" if row.given_up else ""
        cells = [row.variant + broken, str(row.epochs), _mean_words(comparison, row), _minutes(row.wall_s)]
        if has_control:
            cells[3:3] = [_difference(comparison, row)]
            share = "–" if row.reached_share is None else f"{row.reached_share:.2f}"
            cells += [_minutes(row.reached_s), share]
        if comparison.shows_bytes:
            cells += ["–" if sent is None else size(sent) for sent in (row.bytes_down, row.bytes_up)]
        lines.append(f"| {' | '.join(cells)} |")
    seeds = sorted({row.seeds for row in comparison.rows})
    spread = f"Mean ± sample standard deviation over {' or '.join(map(str, seeds))} seeds."
    return [*lines, "", "One seed each." if seeds == [1] else spread]


def _mean_words(comparison: Comparison, row: Row) -> str:
    spread = "" if row.spread is None else f" ± {_value(comparison, row.spread)}"
    return _value(comparison, row.mean) + spread


def _value(comparison: Comparison, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if comparison.is_regression else f"{100 * value:.2f} %"


def _difference(comparison: Comparison, row: Row) -> str:
    if row.difference is None or row.variant == comparison.control:
        return "–"
    return f"{row.difference:+.4g}" if comparison.is_regression else f"{100 * row.difference:+.2f} points"


def _minutes(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds / 60:.0f} min"


def _write_data(path: Path, runs: Sequence[RunFigures]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(_COLUMNS)
        for run in runs:
            begin = (run.run.variant, run.run.epochs, run.run.seed)
            for point in run.points:
                measured = (point.validation, point.validation_min, point.validation_max, point.test)
                rows.writerow(
                    (
                        *begin,
                        point.epoch,
                        round(point.wall_s, 3),
                        *("" if v is None else f"{v:.5g}" for v in measured),
                        run.stop_reason,
                    )
                )


def _split(runs: Sequence[RunFigures]) -> str:
    what = "loss" if any(run.is_regression for run in runs) else "accuracy"
    return f"{'test' if all(point.test is not None for run in runs for point in run.points) else 'validation'} {what}"


def _curves(runs: Sequence[RunFigures]) -> list[Curve]:
    """A curve for each variant and length: the mean over the seeds, as wide as their spread."""
    groups: dict[tuple[str, int], list[RunFigures]] = {}
    for run in runs:
        groups.setdefault((run.run.variant, run.run.epochs), []).append(run)
    has_lengths = len({epochs for _, epochs in groups}) > 1
    return [
        Curve(
            f"{variant}, {plural(epochs, 'epoch')}" if has_lengths else variant,
            _details(group),
            LOSS if group[0].is_regression else ACCURACY,
        )
        for (variant, epochs), group in groups.items()
    ]


def _details(group: Sequence[RunFigures]) -> tuple[EpochDetail, ...]:
    details = []
    for points in zip(*(run.points for run in group), strict=False):  # to the shortest seed
        values = [point.value for point in points]
        if all(map(math.isfinite, values)):
            mean, spread = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
            wall_s = statistics.fmean(point.wall_s for point in points)
            details.append(EpochDetail(points[0].epoch, mean, mean - spread, mean + spread, wall_s))
    return tuple(details)
