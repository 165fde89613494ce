"""`vcdl export`: a version of a run's model, as a file for plain Keras."""

from pathlib import Path

import click

from vcdl.commands._elsewhere import ServedCommand
from vcdl.commands._options import FILE, PATH, in_project, project_option
from vcdl.errors import ExitCode, RunFolderError
from vcdl.run.folder import RunFolder

_EXAMPLES = """\b
Examples:
  vcdl export runs/fashion_mnist -o model.keras
  vcdl export runs/fashion_mnist -o best.keras --best
  vcdl export runs/reviews --preset tuned
  vcdl export runs/fashion_mnist -o mine.weights.h5
  vcdl export runs/fine_tuned -o adapters.npz --lora
  vcdl export runs/fashion_mnist --mlflow http://127.0.0.1:5000
  vcdl export runs/fashion_mnist --page fashion.html       to send to somebody

The exported model normalises by itself: give it samples as they are in your data
set, say images of 0 to 255. keras.models.load_model needs nothing of vcdl."""


def export(path: Path, output: Path, best: bool = False) -> ExitCode:
    """Write a run's model or its weights into a file that Keras can load without VCDL.

    Args:
        path: The run's folder.
        output: The file. Its ending decides what is written: .keras, .weights.h5, or .npz for what was trained alone.
        best: Write the version at the end of the best epoch instead of the newest one.

    Raises:
        VcdlError: The run cannot be read, or the file cannot be written.
    """
    from vcdl.run.export import best_version, export_model, newest_version
    from vcdl.run.finding import display_path

    folder = RunFolder.existing(path)
    if not folder.prepared_file.is_file():
        raise RunFolderError(f"{path} has no model yet: wait until its first subtasks run")
    version = export_model(folder, output, best_version if best else newest_version)
    click.echo(f"model {display_path(output)}, version {version} of the weights")
    return ExitCode.OK


def export_to_preset(path: Path, output: Path, best: bool = False) -> ExitCode:
    """Write a run's model as a preset of KerasHub, if its job has started from one.

    Args:
        path: The run's folder.
        output: The new folder of the preset.
        best: Write the version at the end of the best epoch instead of the newest one.

    Raises:
        VcdlError: The job has no preset, or the folder cannot be written.
    """
    from vcdl.run.export import best_version, export_preset, newest_version
    from vcdl.run.finding import display_path

    version = export_preset(RunFolder.existing(path), output, best_version if best else newest_version)
    click.echo(f"preset {display_path(output)}, version {version} of the weights")
    return ExitCode.OK


def export_to_tracker(path: Path, server: str | None) -> ExitCode:
    """Log a run's settings, curves and results to an experiment tracker.

    Args:
        path: The run's folder.
        server: Address of an MLflow server, or None to use trackio.

    Raises:
        VcdlError: The run cannot be read, or the tracker cannot be reached.
    """
    from vcdl.journal.events import VersionEvaluated
    from vcdl.report.trackers import log_to_mlflow, log_to_trackio
    from vcdl.run.frozen_job import read_frozen
    from vcdl.run.reading import journal_of, read_report

    folder = RunFolder.existing(path)
    job, report = read_frozen(folder), read_report(folder)
    files = [file for file in (folder.summary_file, folder.plot_file, folder.keras_file) if file.is_file()]
    with journal_of(folder) as journal:
        # Log only evaluations: each point is a row at the tracker, and a run has too many updates.
        events = () if journal is None else journal.stream(kinds=(VersionEvaluated,))
        if server is None:
            click.echo(f"logged; see it by `{log_to_trackio(folder.path, job, report, events)}`")
        else:
            click.echo(f"logged {log_to_mlflow(server, folder.path, job, report, events, files)}")
    return ExitCode.OK


def export_page(path: Path, file: Path) -> ExitCode:
    """Write a run's page as one file that needs no service and loads nothing else.

    Raises:
        VcdlError: The run cannot be read, or the file cannot be written.
    """
    from vcdl.files.extras import require

    # Check the packages before the import below, which would fail with the name of a module instead of advice.
    require("web", "fastapi", "jinja2")
    from vcdl.run.finding import display_path
    from vcdl.web.static_page import write_page

    write_page(RunFolder.existing(path), file)
    click.echo(f"page {display_path(file)}")
    return ExitCode.OK


def _keras_file(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and not value.name.endswith((".keras", ".weights.h5", ".npz")):
        raise click.BadParameter(
            f"{value} must end in .keras (a whole model), .weights.h5 (its weights), or .npz (with --lora)"
        )
    return value


@click.command("export", cls=ServedCommand, epilog=_EXAMPLES)
@click.argument("path", metavar="DIR", type=PATH)
@click.option(
    "-o", "--output", metavar="FILE", type=FILE, callback=_keras_file,
    help="File to write; an existing one is replaced.",
)  # fmt: skip
@click.option("--preset", metavar="FOLDER", type=PATH, help="Write a preset of KerasHub instead, to a new folder.")
@project_option
@click.option("--best", is_flag=True, help="The end of the best epoch instead of the newest weights.")
@click.option("--lora", is_flag=True, help="What was trained alone, into a FILE.npz.")
@click.option("--mlflow", metavar="URL", help="Log settings, curves and results to this MLflow server instead.")
@click.option("--trackio", is_flag=True, help="Log settings and curves to trackio instead.")
@click.option("--page", metavar="FILE.html", type=FILE, help="Write the run's page as one file instead.")
def command(
    path: Path,
    project_dir: Path | None,
    output: Path | None,
    preset: Path | None,
    best: bool,
    lora: bool,
    mlflow: str | None,
    trackio: bool,
    page: Path | None,
) -> ExitCode:
    """Write a run's model for plain Keras, or a page of the run."""
    path = in_project(path, project_dir) or path
    if sum((output is not None, preset is not None, mlflow is not None, trackio, page is not None)) != 1:
        raise click.UsageError(
            "say where to: -o FILE.keras or --preset FOLDER for the model, or one of --mlflow URL, --trackio, "
            "--page FILE.html for the run"
        )
    # Require both or neither: an .npz without --lora would be mistaken for a whole model.
    if lora != (output is not None and output.suffix == ".npz"):
        raise click.UsageError("--lora and -o FILE.npz go together: what was trained alone, such as LoRA's matrices")
    if preset is not None:
        return export_to_preset(path, preset, best)
    if output is not None:
        return export(path, output, best)
    return export_to_tracker(path, mlflow) if page is None else export_page(path, page)
