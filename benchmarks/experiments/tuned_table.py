"""The table of an experiment of cells: one row for what is compared, one column for each problem and way to train."""

import csv
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.experiments.experiment import Experiment, Tuned
from benchmarks.experiments.measured import RunFigures
from benchmarks.experiments.tuning import TUNING_SEEDS
from benchmarks.experiments.written import ResultFiles, write_report
from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write

_HEAD = ("variant", "rate", "seed", "final", "bytes_up")


def write_tuned_results(
    files: ResultFiles, experiment: Experiment, runs: Sequence[RunFigures], tried: Sequence[RunFigures], command: str
) -> list[str]:
    """Write the report and all figures, and return the table. Raises RunFolderError."""
    cells = {cell.name: cell for cell in experiment.variants if isinstance(cell, Tuned)}
    lines = list(lines_of(list(cells.values()), runs))
    with folder_errors(files.folder), atomic_write(files.data) as temporary:
        _write_figures(temporary, [*runs, *tried])
    with folder_errors(files.folder), atomic_write(files.figures) as temporary:
        temporary.write_text(json.dumps({"command": command, "table": lines}, indent=1) + "\n", encoding="utf-8")
    write_report(files, experiment, lines, "Every run and trial", command)
    return lines


def lines_of(cells: Sequence[Tuned], runs: Sequence[RunFigures]) -> Iterator[str]:
    """The table as lines of Markdown."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    yield f"| | {' | '.join(columns)} |"
    yield f"|{'---|' * (len(columns) + 1)}"
    for row in dict.fromkeys(cell.row for cell in cells):
        words = []
        for column in columns:
            cell = next((cell for cell in cells if (cell.row, cell.column) == (row, column)), None)
            words.append("" if cell is None else _words(cell, [run for run in runs if run.run.variant == cell.name]))
        yield f"| {row} | {' | '.join(words)} |"
    yield ""
    seeds = len({run.run.seed for run in runs})
    yield "One seed each." if seeds == 1 else f"Mean ± sample standard deviation over {seeds} seeds."
    if any(cell.rate is not None for cell in cells):
        which = "this seed" if {run.run.seed for run in runs} <= set(TUNING_SEEDS) else "another seed"
        yield f"In brackets the rate that was best with {which}."


def _words(cell: Tuned, runs: Sequence[RunFigures]) -> str:
    finals = [run.final for run in runs if run.final is not None]
    if len(finals) < len(runs) or not runs:
        return "breaks off"
    scale, digits = (1.0, ".4g") if runs[0].is_regression else (100.0, ".1f")
    mean = format(scale * statistics.fmean(finals), digits)
    spread = f" ± {scale * statistics.stdev(finals):.2g}" if len(finals) > 1 else ""
    return f"{mean}{spread}" + ("" if cell.rate is None else f" ({cell.rate:g})")


def _write_figures(path: Path, runs: Sequence[RunFigures]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(_HEAD)
        for run in runs:
            name, _, rate = run.run.variant.partition(" at ")
            final = "" if run.final is None else f"{run.final:.5g}"
            rows.writerow((name, rate, run.run.seed, final, "" if run.bytes_up is None else round(run.bytes_up)))
