"""Render a job's page, the list of jobs and comparisons as HTML, in parts that a browser can replace one by one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from vcdl.errors import printable
from vcdl.files.version import __version__
from vcdl.report.own_settings import own_settings
from vcdl.report.progress import epoch_words, measured_figures, model_words, score_words
from vcdl.report.side_by_side import ComparisonRow, result_rows, setting_rows
from vcdl.report.wording import ago, clock_time, duration, plural
from vcdl.run.reading import NOBODY_WORKS, RunState
from vcdl.run.standing import JobRow, Standing
from vcdl.web.catalogue import JobPage, UnreadableJob
from vcdl.web.job_trouble import troubles
from vcdl.web.job_view import FeedLine, JobView
from vcdl.web.overview import PageCell, PageSection
from vcdl.web.pictures import comparison_chart, loss_chart, measure_chart, sparkline, staleness_chart
from vcdl.web.stream_picture import StreamPicture, stream_picture
from vcdl.wire.task import LOSS

_FEED = 25
_SETTINGS = 4
"""Most columns of the list for settings: more would push the time left off a screen of 1280 pixels."""
PARTS = ("trains", "head", "trouble", "figures", "curves", "stream", "staleness", "profile", "epochs", "feed",
         "settings")  # fmt: skip
"""Parts of a job's page that change while the job runs: each is the id of an element and the macro that renders it."""
_PUBLIC_FIGURES = ("epoch", "subtasks", "staleness", "running for", "speed")
_AFTER_TROUBLE = "not shown while the job has the trouble above."
"""Replaces the sentence on speed, so that it does not distract from the trouble to be solved first."""
_CAN_STOP = (RunState.RUNNING, RunState.WAITING)
_CAN_RESUME = (RunState.PAUSED, RunState.KILLED, RunState.FAILED)


def _job_facts(view: JobView, is_public: bool, by_epoch: bool) -> dict[str, Any]:
    """Return the values that the macros in job_parts.html show, keyed by the names used there.

    Args:
        view: The job, which must not change meanwhile.
        is_public: Return only what visitors may see: hosts are numbered, and of the submitter's own texts only the
            names of the job and its metrics are included.
        by_epoch: Draw the curves over epochs rather than over time.
    """
    standing, row, report = view.standing, view.row(), view.report
    figures = standing.figures()
    left = figures.pop("time left", "")
    trouble = troubles(view, row.state, is_public)
    hosts = len({span.host for span in view.stream.ended})
    model = model_words(standing.goal, report)
    if lost := sum(host.lost for host in view.hosts.hosts.values()):
        # A lost subtask counts once in "subtasks", and here at each host that had a copy, as in the table of hosts.
        figures["attempts lost"] = f"{lost}, counted by host"
    there = [] if is_public else [name for name in FILES if (view.folder.path / name).is_file()]
    return {
        "name": view.folder.path.name,
        "trains": row.trains,
        "note": None if is_public else row.note,
        "state": row.state.value,
        "epochs_done": len(report.history.closed),
        "epochs": row.epochs,
        "done": min(1.0, report.subtasks_done / max(1, standing.goal.subtasks)),
        "left": left,
        "measure": printable(f"{report.monitor.name}: {score_words(standing.goal, report)}"),
        "trouble": trouble,
        "figures": _public_figures(figures, standing) if is_public else figures,
        "charts": [one for one in (measure_chart(report, by_epoch), loss_chart(report, by_epoch)) if one is not None],
        "stream": _stream(view, standing, is_public),
        "staleness": staleness_chart(view.stream.staleness, hosts) if hosts > 1 else None,
        "sentence": _AFTER_TROUBLE if trouble or is_public else view.profile.sentence(view.job) or "not known yet.",
        "newest_epochs": epoch_lines(view),
        "feed": [] if is_public else feed_of(view),
        "settings": {} if is_public else own_settings(view.job),
        "files": [
            (name, FILES[name][0] + (f" ({model})" if name == "model.keras" and model else "")) for name in there
        ],
        "has_clock": view.folder.kind.has_wall_clock,
        "can_stop": not is_public and row.state in _CAN_STOP,
        "can_resume": not is_public and row.state in _CAN_RESUME and view.folder.kind.has_wall_clock,
    }


def _public_figures(figures: dict[str, str], standing: Standing) -> dict[str, str]:
    # Select the public figures instead of removing the others, so that a figure added later is hidden from visitors.
    shown = {label: words for label, words in figures.items() if label in _PUBLIC_FIGURES}
    return {**shown, **measured_figures(standing.goal, standing.report)}


FILES = {
    "model.keras": ("the model", "application/octet-stream"),
    "summary.json": ("the results", "application/json"),
    "curves.png": ("the curves", "image/png"),
    "confusion_matrix.csv": ("the confusion matrix", "text/csv"),
}
"""Name of each file of a run that can be downloaded → its description and its media type."""


class Pages:
    """Renders the parts of pages with the templates of this package."""

    def __init__(self, has_fleets: bool = False, base: str = "", is_public: bool = False) -> None:
        ways = [("/", "Jobs"), ("/hosts", "Hosts"), ("/server", "Server"), *([("/fleets", "Fleets")] * has_fleets)]
        self.environment = Environment(
            loader=PackageLoader("vcdl.web"),
            autoescape=True,
            # Raise for a misspelt name in a template, so that a test fails instead of a page showing nothing there.
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters |= {"query": _query}
        self.environment.filters |= {"prose": _prose, "duration": duration, "clock": clock_time, "printable": printable}
        self.environment.globals |= {"version": __version__, "sparkline": sparkline}
        self.environment.globals |= {"ways": ways, "here": "", "base": base, "is_public": is_public}

    def job_parts(self, view: JobView, is_public: bool = False, by_epoch: bool = False) -> dict[str, str]:
        """Return the HTML of each part of a job's page, keyed by PARTS.

        Args:
            view: The job.
            is_public: Render the page for visitors, who see no names of hosts, no settings, no files and no feed.
            by_epoch: Draw the curves over epochs rather than over time.

        Raises:
            RunFolderError, JobError, JournalError: The job cannot be read.
        """
        facts = _job_facts(view, is_public, by_epoch)
        # Use the macros of the whole page, so that a part looks the same after an update.
        macros = self.environment.get_template("job_parts.html").module
        return {name: str(getattr(macros, name)(facts)) for name in PARTS}

    def comparison(self, standings: Mapping[str, Standing], by_epoch: bool) -> dict[str, Any]:
        """Return what the page that compares jobs shows.

        Args:
            standings: The jobs, keyed by name.
            by_epoch: Draw the curves over epochs rather than over time.

        Returns:
            `charts`: a chart for each metric and for the loss, with a curve for each job. `table`: HTML of the tables
            of results and of settings that differ.
        """
        runs = [standing.as_column(name) for name, standing in standings.items()]
        reports = {run.name: run.report for run in runs}
        measures = dict.fromkeys([*(report.monitor.name for report in reports.values()), LOSS])
        charts = [comparison_chart(measure, reports, by_epoch) for measure in measures]
        head = [PageCell("job"), *(PageCell(run.name, job=run.name) for run in runs)]
        sections = [
            PageSection(heading, rows=[head, *map(_comparison_cells, rows)])
            for heading, rows in (("Results", result_rows(runs)), ("Settings that differ", setting_rows(runs)))
        ]
        table = self.overview_parts(sections)["sections"]
        return {"charts": [chart for chart in charts if chart is not None], "table": table}

    def overview_parts(self, sections: list[PageSection]) -> dict[str, str]:
        """Return the HTML of the sections, as the one part `sections` of their page."""
        macros: Any = self.environment.get_template("overview_parts.html").module
        return {"sections": str(macros.sections(sections))}

    def list_parts(self, page: JobPage, is_public: bool = False) -> dict[str, str]:
        """Return the parts of the list of jobs.

        Args:
            page: The rows.
            is_public: Render the list for visitors, who see no settings, no notes and no reasons why a job cannot be
                read.

        Returns:
            HTML of `head`, of `count` and of each row (`job-NAME`); `after`, the cursor of the next page, empty on the
            last one; and `names`, the names of rows and columns, by which a browser notices that it must reload the
            list because rows or columns were added or removed.
        """
        macros: Any = self.environment.get_template("list_parts.html").module
        columns = {} if is_public else _differing([row for row in page.rows if isinstance(row, JobRow)])
        rows = {
            f"job-{row.job}": str(macros.row(row, isinstance(row, UnreadableJob), is_public, columns))
            for row in page.rows
        }
        return {
            "count": str(macros.count(page)),
            "head": str(macros.head(columns, is_public)),
            "names": " ".join([*(row.job for row in page.rows), *columns]),
            "after": page.after or "",
            **rows,
        }


def _comparison_cells(row: ComparisonRow) -> Sequence[PageCell]:
    label, values = row
    kind = "group" if label.startswith("at the ") else "of-group" if label.startswith("  ") else ""
    return [PageCell(label, kind), *(PageCell(words, "good" if words.startswith("* ") else "") for words in values)]


def _differing(rows: Sequence[JobRow]) -> dict[str, str]:
    """Return the settings in which the jobs of a page differ: key → default. They become columns of the list.

    At most `_SETTINGS` are returned, those that the most jobs set.
    """
    defaults = {key: default for row in rows for key, (_, default) in row.settings.items()}
    counts = Counter(key for row in rows for key in row.settings)
    found = [key for key, _ in counts.most_common() if len({row.settings.get(key) for row in rows}) > 1]
    return {key: defaults[key] for key in found[:_SETTINGS]}


def _stream(view: JobView, standing: Standing, is_public: bool = False) -> StreamPicture | None:
    """Return the picture of the subtask stream up to now, or up to the last event if the job does not run.

    Args:
        view: The job.
        standing: Its standing; the stream ends at its `now_s`, unless that is None.
        is_public: Number the hosts in the order in which they appeared, instead of naming them.
    """
    spans = view.stream.spans(standing.now_s)
    if is_public:
        names = dict.fromkeys((*view.hosts.hosts, *(span.host for span in spans)))
        # Number hosts in the order of arrival, in which the table of hosts keeps them: so a host keeps its number when
        # the page is loaded again.
        numbers = {name: number for number, name in enumerate(names, 1)}
        spans = [replace(span, host=f"host {numbers[span.host]}") for span in spans]
    if standing.now_s is not None:
        return stream_picture(spans, standing.now_s)
    last_s = view.stream.last_s
    # A simulation's times are virtual, so "ago" would mean nothing.
    if not view.folder.kind.has_wall_clock:
        return stream_picture(spans, last_s, "the last event")
    if standing.state not in NOBODY_WORKS:
        return stream_picture(spans, last_s, f"the end at {clock_time(last_s)}")
    return stream_picture(spans, last_s, f"last event at {clock_time(last_s)}, {ago(last_s)}", is_idle=True)


def epoch_lines(view: JobView) -> list[FeedLine]:
    """Return a feed line with the results of each of the last epochs, at most `_FEED`, newest first."""
    report, goal = view.report, view.standing.goal
    return [
        FeedLine(report.history.closed[one.epoch].time_s, printable(epoch_words(goal, report, one)))
        for one in reversed(report.epochs[-_FEED:])
    ]


def feed_of(view: JobView, *further: FeedLine) -> list[FeedLine]:
    """Return the newest lines of a job's feed, at most `_FEED`, newest first.

    Adjacent setbacks with the same cause become one line.

    Args:
        view: The job.
        further: Lines that the view's feed lacks, such as `epoch_lines`.
    """
    lines = sorted([*view.feed, *further], key=lambda line: line.time_s, reverse=True)
    # Only neighbours are merged: an event between two setbacks may be their cause.
    alike = (list(group) for _, group in groupby(lines, key=lambda line: line.cause or id(line)))
    return [_together(group) for group in islice(alike, _FEED)]


def _together(alike: list[FeedLine]) -> FeedLine:
    """Merge lines with the same cause, newest first, into the newest one, which then names their number and hosts."""
    newest = alike[0]
    if len(alike) == 1:
        return newest
    hosts = {line.host for line in alike} - {""}
    where = f", on {plural(len(hosts), 'host')}" if hosts else ""
    return replace(newest, words=f"{newest.words}; and {len(alike) - 1} more like it{where}")


def _prose(words: str) -> Markup:
    """Return a sentence with a capital letter, and text between backticks as code."""
    # Escape first: afterwards, only our own tags are markup.
    parts = str(escape(f"{words[:1].upper()}{words[1:]}")).split("`")
    return Markup("".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts)))


def _query(asked: Mapping[str, str | Sequence[str]], **changed: str) -> str:
    """Return the query part of an address with some values changed; empty values are omitted."""
    found = urlencode({name: value for name, value in {**asked, **changed}.items() if value}, doseq=True)
    return f"?{found}" if found else ""
