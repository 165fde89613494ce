"""The results of the experiment `store`, which trains nothing."""

import csv
from collections.abc import Sequence
from dataclasses import asdict

from vcdl.bench.store import StoreBench
from vcdl.errors import folder_errors
from vcdl.experiments.experiment import Experiment
from vcdl.experiments.written import ResultFiles, write_report
from vcdl.files.atomic import atomic_write


def write_store_results(
    files: ResultFiles, experiment: Experiment, bench: StoreBench, lines: Sequence[str], command: str
) -> None:
    """Write all four files; `lines`: the table of `vcdl bench store`. Raises RunFolderError."""
    with (
        folder_errors(files.data.parent),
        atomic_write(files.data) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        rows = csv.DictWriter(file, list(asdict(bench.rows[0])), lineterminator="\n")
        rows.writeheader()
        rows.writerows(asdict(row) for row in bench.rows)
    with folder_errors(files.figures.parent), atomic_write(files.figures) as temporary:
        temporary.write_text(bench.to_json() + "\n", encoding="utf-8")
    _draw(files, experiment, bench)
    write_report(files, experiment, ["```text", *lines, "```"], "Every case", command)


def _draw(files: ResultFiles, experiment: Experiment, bench: StoreBench) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = [f"{row.store} {row.case}, {row.waiting} waiting".strip() for row in bench.rows]
    axes.barh(names[::-1], [row.ms_per_update for row in bench.rows][::-1], color="#0072b2")
    axes.set_xlabel("ms per update")
    axes.set_title(experiment.title)
    axes.grid(axis="x", alpha=0.3)
    with folder_errors(files.picture.parent), atomic_write(files.picture) as temporary:
        figure.savefig(temporary, dpi=150)
