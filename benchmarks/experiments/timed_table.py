"""The report of an experiment of ways to train on a fleet: time to serial's accuracy, bytes by link, and goodput."""

import csv
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from benchmarks.experiments.experiment import Experiment, Timed
from benchmarks.experiments.measured import RunFigures
from benchmarks.experiments.planned_run import PlannedRun
from benchmarks.experiments.written import ResultFiles, write_report
from vcdl.errors import folder_errors
from vcdl.files.atomic import atomic_write
from vcdl.journal.events import UpdateApplied, WorkunitSent
from vcdl.journal.observer import RunObserver
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.clients import Clients
from vcdl.simulate.simulation import simulate_times

SERIAL, DEFAULT = "serial", "today's default"
_SLACKS = (0.01, 0.02)
"""Accuracy below serial's at its end."""
_CLASSES = {"slow links": slice(0, 3), "middle": slice(3, 7), "fast": slice(7, 10)}
"""Places among ten links, from the slowest on."""
_AN_HOUR_S = 3600.0
_LOST = (0.1, 0.5, 0.9)
"""Parts of the hosts that are lost in an hour."""


@dataclass(frozen=True)
class Line:
    """A way to train one problem on one fleet, over the seeds."""

    kind: str
    links: str
    way: str
    final: float
    times_s: tuple[float | None, ...]
    """Until serial's accuracy less each of _SLACKS, medians; None: most seeds never came so far."""
    bytes_up: float
    bytes_down: float
    up_by_class: tuple[float, ...]
    """Bytes of a subtask by the class of the host's link."""
    down_by_class: tuple[float, ...]


def lines_of(variants: Sequence[Timed], runs: Sequence[RunFigures]) -> list[Line]:
    """The experiment's figures, in the order of its variants."""
    by_name = {variant.name: [run for run in runs if run.run.variant == variant.name] for variant in variants}
    goals = {
        variant.kind: fmean(run.final or 0.0 for run in by_name[variant.name])
        for variant in variants
        if variant.way == SERIAL
    }
    return [_line(one, by_name[one.name], goals.get(one.kind, math.inf)) for one in variants if by_name[one.name]]


def _line(variant: Timed, runs: Sequence[RunFigures], goal: float) -> Line:
    times = [
        median(next((p.wall_s for p in run.points if p.value >= goal - slack), math.inf) for run in runs)
        for slack in _SLACKS
    ]
    by_class = [_bytes_by_class(run.run) for run in runs] if variant.way != SERIAL else []
    up, down = (tuple(fmean(some) for some in zip(*(row[way] for row in by_class), strict=True)) for way in (0, 1))
    return Line(
        variant.kind,
        variant.links,
        variant.way,
        fmean(run.final or 0.0 for run in runs),
        tuple(time_s if time_s < math.inf else None for time_s in times),
        fmean(run.bytes_up or 0.0 for run in runs),
        fmean(run.bytes_down or 0.0 for run in runs),
        up,
        down,
    )


def _bytes_by_class(run: PlannedRun) -> tuple[list[float], list[float]]:
    """Mean bytes up and down of a subtask, for each class of links."""
    clients = Clients(run.fleet)
    order = sorted(range(run.fleet.clients), key=lambda client: clients.bytes_per_s(client) or 0.0)
    up: dict[str, list[int]] = {}
    down: dict[str, list[int]] = {}
    for applied in events_of(run.folder, UpdateApplied):
        up.setdefault(applied.host, []).append(applied.bytes_up)
    for sent in events_of(run.folder, WorkunitSent):
        down.setdefault(sent.host, []).append(sent.bytes_down)

    def means(told: dict[str, list[int]]) -> list[float]:
        some = [
            [size for client in order[part] for size in told.get(f"client-{client:02d}", [])]
            for part in _CLASSES.values()
        ]
        return [fmean(sizes) if sizes else math.nan for sizes in some]

    return means(up), means(down)


def tables(lines: Sequence[Line]) -> Iterator[str]:
    """The figures as lines of Markdown."""
    for kind, links in dict.fromkeys((line.kind, line.links) for line in lines):
        some = [line for line in lines if (line.kind, line.links) == (kind, links)]
        usual = next((line.times_s for line in some if line.way == DEFAULT), ())
        yield from (f"## {kind.capitalize()}, {links}", "")
        yield "| | accuracy | less 1 point | less 2 | KB up | KB up, by link | KB down | KB down, by link |"
        yield f"|{'---|' * 8}"
        for line in some:
            cells = [
                line.way,
                f"{100 * line.final:.1f}",
                *(_time(time_s, other_s) for time_s, other_s in zip(line.times_s, usual, strict=False)),
                *(_kilobytes(line.bytes_up), _kilobytes(*line.up_by_class)),
                *(_kilobytes(line.bytes_down), _kilobytes(*line.down_by_class)),
            ]
            yield f"| {' | '.join(cells)} |"
        yield ""


def _time(time_s: float | None, usual_s: float | None) -> str:
    if time_s is None:
        return "never"
    return f"{time_s:,.1f} s" + (f" ({usual_s / time_s:.1f} ×)" if usual_s else "")


def _kilobytes(*sizes: float) -> str:
    return " / ".join("–" if math.isnan(size) else f"{size / 1e3:.0f}" for size in sizes) or "–"


def goodput_table(run: PlannedRun, target_s: float) -> Iterator[str]:
    """The part of the hosts' time that ends in the weights, while hosts are lost for good and others take their places.

    `run`: a run of today's default, whose shards are trained as they are, and in parts of `target_s`.
    """
    yield from (
        "## Goodput",
        "",
        f"| hosts lost an hour | subtasks of 600 s | by time, of {target_s:g} s |",
        "|---|---|---|",
    )
    jobs = [
        run.job,
        run.job.model_copy(update={"training": run.job.training.model_copy(update={"target_s": target_s})}),
    ]
    for lost in _LOST:
        fleet = ClientFleet(
            clients=100,
            slots=1,
            speed_ratio=8.0,
            subtask_s=600.0,
            preempted_every_s=-_AN_HOUR_S / math.log(1 - lost),
            away_s=120.0,
            checkpoint_every_s=None,
            loss_report_s=60.0,
        )
        cells = []
        for job in jobs:
            stop = job.stop.model_copy(update={"epochs": 5})
            data = job.data.model_copy(update={"shards": 200})
            with tempfile.TemporaryDirectory() as folder:
                report = simulate_times(
                    RunFolder(Path(folder) / "run"),
                    job.model_copy(update={"stop": stop, "data": data}),
                    fleet,
                    RunObserver(),
                )
            slots = None if report is None else report.slots
            share = 0.0 if slots is None else slots.useful_s / (slots.useful_s + slots.lost_s)
            cells.append(f"{100 * share:.0f} %")
        yield f"| {100 * lost:.0f} % | {' | '.join(cells)} |"


def write_timed_results(
    files: ResultFiles, experiment: Experiment, runs: Sequence[RunFigures], command: str
) -> list[str]:
    """Write the report and all figures, and return the tables. Raises RunFolderError."""
    variants = [variant for variant in experiment.variants if isinstance(variant, Timed)]
    shown = list(tables(lines_of(variants, runs)))
    usual = next((run.run for run in runs if DEFAULT in run.run.variant), None)
    if usual is not None:
        shown += goodput_table(usual, 60.0)
    with folder_errors(files.folder), atomic_write(files.data) as temporary:
        _write_figures(temporary, runs)
    with folder_errors(files.folder), atomic_write(files.figures) as temporary:
        temporary.write_text(json.dumps({"command": command, "table": shown}, indent=1) + "\n", encoding="utf-8")
    write_report(files, experiment, shown, "Every run and epoch", command)
    return shown


def _write_figures(path: Path, runs: Sequence[RunFigures]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("variant", "seed", "epoch", "virtual_s", "test"))
        for run in runs:
            for point in run.points:
                rows.writerow(
                    (run.run.variant, run.run.seed, point.epoch, round(point.wall_s, 1), f"{point.value:.4f}")
                )
