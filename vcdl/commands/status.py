"""`vcdl status`: a run's progress, read from its journal during the run or afterwards."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import costs_of, fleet_option, in_project, project_option
from vcdl.errors import ExitCode, GridError

if TYPE_CHECKING:
    from vcdl.report.measures import Report
    from vcdl.report.progress import RunGoal
    from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  vcdl status                      the run below runs/ that changed last
  vcdl status runs/digits
  vcdl status runs/digits --json | jq .state
  vcdl status mnist --project-dir ~/projects/grid"""


def status(path: Path | None = None, as_json: bool = False, fleet: Path | None = None) -> ExitCode:
    """Print a run's state and figures. Raises RunFolderError, JobError, JournalError, FleetError."""
    from vcdl.planner.time_left import money_to_end
    from vcdl.report.progress import RunGoal, range_left, seconds_left
    from vcdl.report.summary import as_json as json_text
    from vcdl.report.summary import summary_of
    from vcdl.run.control import changes_of
    from vcdl.run.finding import chosen_run, resume_hint, shown
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.reading import RunState, clock_of, read_report, state_of

    folder = chosen_run(path)
    goal = RunGoal.of(read_frozen(folder), costs_of(fleet))
    report = read_report(folder)
    pid = folder.running_pid
    state = state_of(folder, report)
    found = _troubles(folder) if state in (RunState.RUNNING, RunState.WAITING) else []
    if found:
        state = RunState.WAITING
    now_s = clock_of(folder)() if state is RunState.RUNNING and folder.kind.has_wall_clock else None
    if as_json:
        left_s = seconds_left(goal, report, now_s) if now_s is not None else None
        between = range_left(goal, report) if now_s is not None else None
        fields = {
            "folder": str(folder.path),
            "state": state.value,
            "process": pid,
            "troubles": found,
            **_failed_tasks(folder),
            "changed": changes_of(folder),
            "epochs_wanted": goal.epochs,
            "shards": goal.shards,
            "seconds_left": None if left_s is None else round(left_s, 1),
            "seconds_left_range": between,
            **summary_of(goal.job, report),
        }
        if goal.costs is not None:
            spent_usd, usd_per_h = goal.costs()
            to_end = None if between is None else money_to_end(usd_per_h, between)
            fields |= {"spent_usd": spent_usd, "usd_per_h": usd_per_h, "usd_to_end": to_end}
        click.echo(json_text(fields), nl=False)
        return ExitCode.OK
    click.echo(f"{goal.job} in {shown(folder.path)}: {state}{f' (process {pid})' if pid else ''}")
    figures = _figures(goal, report, now_s)
    if changes := changes_of(folder):
        figures["changed"] = changes
    for label, words in figures.items():
        click.echo(f"{label:<12} {words}")
    failed = _failed_tasks(folder)
    if any(failed.values()):
        click.echo(
            f"{'at BOINC':<12} {failed['tasks_failed']} tasks failed, "
            f"{failed['tasks_timed_out']} passed their deadline: sent again"
        )
    for trouble in found:
        click.echo(f"{'waits for':<12} {trouble}")
    if state is RunState.WAITING and not found:
        click.echo(
            "the project's work generator does not run (bin/start starts it), or cannot go on with this job: "
            "see log_HOST/vcdl_work_generator.log"
        )
    elif state in (RunState.PAUSED, RunState.KILLED, RunState.FAILED):
        click.echo(resume_hint(folder))
    return ExitCode.OK


def _troubles(folder: "RunFolder") -> list[str]:
    """The reasons for which a BOINC project's daemons do not go on with its job."""
    if not folder.kind.has_daemons:
        return []
    from vcdl.boinc.project.processes import troubles

    return troubles(_project_dir(folder))


def _failed_tasks(folder: "RunFolder") -> dict[str, int]:
    """The tasks of a BOINC job that BOINC makes up for by itself; nothing where its database does not say."""
    if not folder.kind.has_daemons:
        return {}
    from vcdl.boinc.grid.database import BoincDatabase
    from vcdl.boinc.grid.host_report import facts_of
    from vcdl.boinc.grid.project_folder import BoincProject

    try:
        project = BoincProject.at(_project_dir(folder))
        with closing(BoincDatabase(project)) as database:
            facts = facts_of(project, database, folder.path.name).values()
    except GridError:
        return {}
    return {
        "tasks_failed": sum(each.errors for each in facts),
        "tasks_timed_out": sum(each.timeouts for each in facts),
    }


def _project_dir(folder: "RunFolder") -> Path:
    """The BOINC project of a job, which is in vcdl/runs there."""
    return folder.path.resolve().parent.parent.parent


def _figures(goal: "RunGoal", report: "Report", now_s: float | None) -> dict[str, str]:
    """Labels and words; `now_s` None: nobody runs it."""
    from vcdl.report import progress
    from vcdl.report.wording import duration

    epoch = progress.epoch_at_work(goal, report)
    figures = {
        "epoch": f"{epoch}/{goal.epochs}, {report.applied_by_epoch.get(epoch, 0)} of its {goal.shards} shards done",
        **progress.measured_figures(goal, report),
        "subtasks": progress.count_words(report),
        "staleness": progress.staleness_words(report),
        "running for": duration(report.wall_s if now_s is None else report.wall_s_at(now_s)),
    }
    if report.totals.lost:
        figures["overwritten"] = progress.lost_words(report)
    if report.totals.evaluator_death is not None:
        figures["not measured"] = progress.unmeasured_words(report)
    if report.rollbacks:
        figures["rolled back"] = progress.rollback_words(report)
    figures |= progress.final_words(report)
    if now_s is not None:
        figures["speed"] = progress.speed_words(report, now_s)
        figures["time left"] = progress.left_words(goal, report, now_s)
        if (money := progress.money_words(goal, report)) is not None:
            figures["money"] = money
    return figures


@click.command("status", epilog=_EXAMPLES)
@click.argument("path", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@project_option
@fleet_option
@click.option("--json", "as_json", is_flag=True, help="For programs: the state and the keys of summary.json.")
def command(path: Path | None, project_dir: Path | None, fleet: Path | None, as_json: bool) -> ExitCode:
    """Show a run's progress, also while it runs."""
    return status(in_project(path, project_dir), as_json, fleet)
