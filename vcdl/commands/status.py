"""`vcdl status`: a run's progress, read from its journal during the run or afterwards."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import in_project, project_option
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.report.measures import Report
    from vcdl.report.progress import RunGoal

_EXAMPLES = """\b
Examples:
  vcdl status                      the run below runs/ that changed last
  vcdl status runs/digits
  vcdl status runs/digits --json | jq .state
  vcdl status mnist --project-dir ~/projects/grid"""


def status(path: Path | None = None, as_json: bool = False) -> ExitCode:
    """Print a run's state and figures. Raises RunFolderError, JobError, JournalError."""
    from vcdl.job import load_frozen_job
    from vcdl.report.progress import RunGoal, seconds_left
    from vcdl.report.summary import as_json as json_text
    from vcdl.report.summary import summary_of
    from vcdl.run.finding import RunState, chosen_run, clock_of, read_report, resume_hint, shown, state_of

    folder = chosen_run(path)
    goal = RunGoal.of(load_frozen_job(folder.job_file))
    report = read_report(folder)
    pid = folder.running_pid
    state = state_of(folder, report)
    now_s = clock_of(folder)() if state is RunState.RUNNING and folder.host.has_wall_clock else None
    if as_json:
        left_s = seconds_left(goal, report, now_s) if now_s is not None else None
        fields = {
            "folder": str(folder.path),
            "state": state.value,
            "process": pid,
            "epochs_wanted": goal.epochs,
            "shards": goal.shards,
            "seconds_left": None if left_s is None else round(left_s, 1),
            **summary_of(goal.job, report),
        }
        click.echo(json_text(fields), nl=False)
        return ExitCode.OK
    click.echo(f"{goal.job} in {shown(folder.path)}: {state}{f' (process {pid})' if pid else ''}")
    for label, words in _figures(goal, report, now_s).items():
        click.echo(f"{label:<12} {words}")
    if state is RunState.WAITING:
        click.echo(
            "the project's work generator does not run (bin/start starts it), or cannot go on with this job: "
            "see log_HOST/vcdl_work_generator.log"
        )
    elif state in (RunState.PAUSED, RunState.KILLED, RunState.FAILED):
        click.echo(resume_hint(folder))
    return ExitCode.OK


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
    return figures


@click.command("status", epilog=_EXAMPLES)
@click.argument("path", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@project_option
@click.option("--json", "as_json", is_flag=True, help="For programs: the state and the keys of summary.json.")
def command(path: Path | None, project_dir: Path | None, as_json: bool) -> ExitCode:
    """Show a run's progress, also while it runs."""
    return status(in_project(path, project_dir), as_json)
