"""`vcdl describe`: a job's model, shards and settings, without its data."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcdl.commands._options import job_file_argument, json_option, say, set_option
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.run.describe import Description, LayerFacts

_EXAMPLES = """\b
Examples:
  vcdl describe examples/cifar10_resnet.yaml
  vcdl describe job.yaml --json | jq .model.parameters"""
# Most layers that are printed, because a deep model has hundreds, which would push other lines off the screen.
_MOST_LAYERS = 30


def describe_job(job_file: Path, overrides: Sequence[str] = (), as_json: bool = False) -> ExitCode:
    """Print what is known of a job before any training: model, shards, files that travel, and settings.

    Raises:
        JobError, DataError, ModelError: The job cannot be described.
    """
    from vcdl.job import SMALL_FLEET, load_job
    from vcdl.run.describe import describe_job as description_of
    from vcdl.run.export import start_of

    # Load the job as for a small fleet: the description is about what is sent to clients, which a local run lacks.
    job = load_job(job_file, overrides, SMALL_FLEET)
    description = description_of(job, start_of(job))
    if as_json:
        click.echo(description.to_json(), nl=False)
        return ExitCode.OK
    return say(f"{label:<10} {words}".rstrip() for label, words in _lines(description))


def _lines(description: "Description") -> list[tuple[str, str]]:
    from vcdl.report.wording import group_digits, plural, size
    from vcdl.run.describe import model_ends

    model, shards, settings = description.model, description.shards, description.settings.items()
    each = "of sizes that depend on the data"
    if shards.smallest is not None and shards.largest is not None:
        same = shards.smallest == shards.largest
        each = (
            f"of {group_digits(shards.smallest)}" + ("" if same else f" to {group_digits(shards.largest)}") + " samples"
        )
    return [
        ("job", description.job),
        ("model", f"{plural(model.layers, 'layer')}, {group_digits(model.parameters)} parameters"),
        ("", f"{group_digits(model.trainable_parameters)} of them trainable"),
        *(
            [("", f"{group_digits(model.frozen_parameters)} frozen: they travel once")]
            if model.frozen_parameters
            else []
        ),
        ("", "from {} to {}".format(*model_ends(model.input_shape, model.outputs))),
        *_layer_lines(model.layers_with_weights),
        ("data", f"{plural(shards.count, 'shard')} {each}, {group_digits(shards.samples)} in all"),
        ("", f"{group_digits(shards.validation_samples)} samples validate, {group_digits(shards.test_samples)} test"),
        ("download", f"about {size(description.download_bytes)} for a subtask"),
        *(
            ("", f"{file.name:<14} {size(file.size_bytes)}{', once for each client' if file.once else ''}")
            for file in description.downloads
        ),
        ("upload", f"about {size(description.upload_bytes)} by a subtask"),
        *(("", f"{file.name:<14} {size(file.size_bytes)}") for file in description.uploads),
        ("rate", description.rate),
        *((section, _in_one_line(values, description.packages.get(section))) for section, values in settings),
    ]


def _layer_lines(layers: "Sequence[LayerFacts]") -> list[tuple[str, str]]:
    from vcdl.report.wording import group_digits

    shown = layers[:_MOST_LAYERS]
    longest = max((len(layer.path) for layer in shown), default=0)
    lines = [f"{layer.path:<{longest}}  {group_digits(layer.parameters)}{_limits(layer)}" for layer in shown]
    if len(layers) > len(shown):
        lines.append(f"and {len(layers) - len(shown)} more: --json has all")
    return [("layers" if at == 0 else "", line) for at, line in enumerate(lines)]


def _limits(layer: "LayerFacts") -> str:
    from vcdl.report.wording import group_digits

    if layer.trainable_parameters == layer.parameters:
        return ""
    return f", {group_digits(layer.trainable_parameters)} trainable" if layer.trainable_parameters else ", frozen"


def _in_one_line(values: Any, package: str | None) -> str:
    from vcdl.job import as_yaml

    text = as_yaml(values, default_flow_style=True, width=math.inf).strip()
    return text if package is None else f"{text} of {package}"


@click.command("describe", epilog=_EXAMPLES)
@job_file_argument
@set_option
@json_option
def command(job_file: Path, overrides: tuple[str, ...], as_json: bool) -> ExitCode:
    """Show a job's model, shards, and settings, without data."""
    return describe_job(job_file, overrides, as_json)
