"""The uploads of a finished run under another rule: `python -m benchmarks.replay RUN`."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcdl.cli import main
from vcdl.commands._options import in_project, json_option, project_option
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from benchmarks.replayed_run import Compared, Replayed
    from vcdl.job import Job
    from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  python -m benchmarks.replay runs/job --rule trimmed_mean --set update.trim=3
  python -m benchmarks.replay runs/job --rule vc_asgd --set update.alpha=0.9
  python -m benchmarks.replay runs/job --rule fedbuff --json | jq .final

Needs a run that was begun with --set retention.uploads=all.
Trains nothing: with another rule the clients would have started from other weights."""


def replay(
    path: Path, rule: str | None = None, overrides: Sequence[str] = (), out: Path | None = None, as_json: bool = False
) -> ExitCode:
    """Apply a run's uploads again and print both results side by side. Raises VcdlError."""
    from benchmarks.replayed_run import replay as replayed_run
    from vcdl.errors import folder_errors
    from vcdl.job import load_frozen_job
    from vcdl.job.update import RULES
    from vcdl.report.summary import as_json as json_text
    from vcdl.report.summary import write_summary
    from vcdl.run.finding import display_path
    from vcdl.run.folder import RunFolder
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.prepared import Prepared
    from vcdl.run.run import Run

    folder = RunFolder.existing(path)
    own = read_frozen(folder)
    if rule is not None and rule not in RULES:
        raise click.BadParameter(f"there is no rule {rule!r}; the rules are {', '.join(RULES)}", param_hint="--rule")
    chosen = [f"update={{rule: {rule}}}"] if rule is not None and rule != own.update.rule else []
    job = load_frozen_job(folder.job_file, [*chosen, *overrides])
    replayed = replayed_run(Run(folder, job, Prepared.read(folder)))
    summary = _summary(folder, job, replayed)
    file = (_default_folder(folder, summary) if out is None else out.resolve()) / "summary.json"
    with folder_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_summary(file, summary)
    if as_json:
        click.echo(json_text(summary), nl=False)
    else:
        for line in _lines(replayed):
            click.echo(line)
        click.echo(f"summary {display_path(file)}")
    return ExitCode.OK


def _summary(folder: "RunFolder", job: "Job", replayed: "Replayed") -> dict[str, Any]:
    return {
        "run": folder.path.name,
        "update": job.to_plain_values()["update"],
        "is_the_runs_own": replayed.is_the_runs_own,
        "epochs": [_finite(compared) for compared in replayed.epochs],
        "final": {compared.split.removeprefix("final_"): _finite(compared) for compared in replayed.final},
    }


def _finite(compared: "Compared") -> dict[str, Any]:
    import math

    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in asdict(compared).items()
    }


def _default_folder(folder: "RunFolder", summary: dict[str, Any]) -> Path:
    """A folder beside the run: that of an earlier equal replay, or a new one."""
    import json

    name = f"{folder.path.name}-replay-{summary['update']['rule']}"
    for number in count(1):
        path = folder.path.with_name(name if number == 1 else f"{name}-{number}")
        file = path / "summary.json"
        if not path.exists():
            break
        try:
            if json.loads(file.read_text(encoding="utf-8"))["update"] == summary["update"]:
                break
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return path


def _lines(replayed: "Replayed") -> list[str]:
    from vcdl.report.progress import measured_words

    what = replayed.monitor.name
    lines = [f"{f'validation {what}':<22}{'run':>10}{'replay':>10}"]
    for compared in (*replayed.epochs, *replayed.final):
        place = f"epoch {compared.epoch}" if compared.epoch else f"at the end, {compared.split.removeprefix('final_')}"
        run, other = (measured_words(value, replayed.monitor) for value in (compared.run, compared.replay))
        lines.append(f"{place:<22}{run:>10}{other:>10}")
    if replayed.is_the_runs_own:
        lines.append("the weights are the run's own, to the last bit")
    return lines


@click.command("benchmarks.replay", epilog=_EXAMPLES)
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@project_option
@click.option("--rule", help="Instead of the run's; its settings are the defaults then.")
@click.option(
    "--set", "overrides", metavar="update.KEY=VALUE", multiple=True, help="Replace a key of the rule; repeatable."
)
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="[default: RUN-replay-RULE, beside the run]"
)
@json_option
def command(
    path: Path, project_dir: Path | None, rule: str | None, overrides: tuple[str, ...], out: Path | None, as_json: bool
) -> ExitCode:
    """Apply a finished run's uploads again under another rule."""
    for setting in overrides:
        if setting.partition("=")[0].partition(".")[0].strip() != "update":
            raise click.UsageError(f"--set {setting}: only keys of `update` can be changed for a replay")
    return replay(in_project(path, project_dir) or path, rule, overrides, out, as_json)


if __name__ == "__main__":
    main(command=command)
