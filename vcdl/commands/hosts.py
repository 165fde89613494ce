"""`vcdl hosts`: who trains a run, and how far each host is believed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcdl.commands._options import in_project, json_option, project_option
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.journal.hosts import HostHistory

_EXAMPLES = """\b
Examples:
  vcdl hosts                       of the run below runs/ that changed last
  vcdl hosts runs/digits
  vcdl hosts runs/digits --json | jq '.[] | select(.state == "quarantined")'
  vcdl hosts mnist --project-dir ~/projects/grid"""


def hosts(path: Path | None = None, as_json: bool = False) -> ExitCode:
    """Print the hosts of a run, the most doubtful ones first. Raises RunFolderError, JobError, JournalError."""
    from vcdl.job import load_frozen_job
    from vcdl.report.summary import as_json as json_text
    from vcdl.run.finding import chosen_run, read_hosts, shown

    folder = chosen_run(path)
    job, history = load_frozen_job(folder.job_file), read_hosts(folder)
    rows = _rows(history, is_for_strangers=job.is_for_strangers)
    if as_json:
        click.echo(json_text(rows), nl=False)
        return ExitCode.OK
    if not rows:
        click.echo(f"{job.name} in {shown(folder.path)}: no host has got work yet")
        return ExitCode.OK
    for line in _lines(rows):
        click.echo(line)
    if not job.is_for_strangers:
        click.echo("the hosts are the submitter's own (trust > kind): none is judged")
    return ExitCode.OK


def _rows(history: "HostHistory", *, is_for_strangers: bool) -> list[dict[str, Any]]:
    """A row for each host; without weight and state where nobody is judged."""
    rows = []
    for record in history.hosts.values():
        score = history.score(record.name)
        rows.append(
            {
                "host": record.name,
                "sent": record.sent,
                "applied": record.applied,
                "refused": record.refused.total(),
                "refusals": dict(sorted(record.refused.items())),
                "superseded": record.superseded,
                "lost": record.lost,
                "turnaround_s": None if record.turnaround_s is None else round(record.turnaround_s, 1),
                "score": None if score is None else round(score, 2),
                "weight": round(history.weight(record.name), 3) if is_for_strangers else None,
                "state": history.state(record.name).value if is_for_strangers else None,
            }
        )
    return sorted(rows, key=lambda row: (1.0 if row["weight"] is None else row["weight"], row["host"]))


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    from vcdl.report.wording import duration, printable

    width = max(len("host"), *(len(printable(row["host"])) for row in rows))
    lines = [f"{'host':<{width}}  applied  refused  lost  turnaround    score  weight  state"]
    for row in rows:
        took_s, score, weight = row["turnaround_s"], row["score"], row["weight"]
        lines.append(
            f"{printable(row['host']):<{width}}  {row['applied']:>7}  {row['refused']:>7}  {row['lost']:>4}  "
            f"{'–' if took_s is None else duration(took_s):>12}  {'–' if score is None else f'{score:.1f}':>5}  "
            f"{'–' if weight is None else f'{weight:.2f}':>6}  {row['state'] or '–'}"
        )
    return lines


@click.command("hosts", epilog=_EXAMPLES)
@click.argument("path", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@project_option
@json_option
def command(path: Path | None, project_dir: Path | None, as_json: bool) -> ExitCode:
    """Show who trains a run, and how far each host is believed."""
    return hosts(in_project(path, project_dir), as_json)
