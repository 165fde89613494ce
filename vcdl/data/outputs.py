"""Check and number the labels of several outputs, each separately, as fields of an array (vcdl.wire.inputs)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vcdl.data.dataset import DataSource, Part, checked_part, labelled, named_labels
from vcdl.data.labels import Classes
from vcdl.data.rows import Array
from vcdl.errors import DataError
from vcdl.wire.inputs import packed, parts_of
from vcdl.wire.task import HAS_CLASSES

if TYPE_CHECKING:
    from vcdl.job.outputs import OutputSettings


def checked_outputs(name: str, x: Array, labels: Mapping[str, Array], outputs: "Sequence[OutputSettings]") -> Part:
    """Check samples and the labels of each output, and return them as a Part.

    Args:
        name: train, val or test, for messages.
        x: The samples.
        labels: The labels by output.
        outputs: The outputs.

    Raises:
        DataError: No model could train on such data.
    """
    parts = {output.name: checked_part(name, x, labels[output.name], output.task, output.name) for output in outputs}
    return Part(x, packed({of: part.y for of, part in parts.items()}))


def labelled_outputs(source: DataSource, outputs: "Sequence[OutputSettings]") -> DataSource:
    """Return the source with each output's labels as numbers of classes.

    Raises:
        DataError: Labels are not classes, or do not match those of their output.
    """
    # Each output goes through the same functions as a single one, as a source of its own with the same samples, so that
    # messages and rules do not differ.
    labels: dict[str, dict[str, Array]] = {name: parts_of(part.y) for name, part in source.parts().items()}
    classes: dict[str, Classes | None] = {}
    for output in outputs:
        of = output.name
        own = {name: Part(part.x, labels[name][of]) for name, part in source.parts().items()}
        named = _labelled(DataSource(own["train"], own.get("val"), own.get("test")), output)
        classes[of] = named.classes
        for name, part in named.parts().items():
            labels[name][of] = part.y
    parts = {name: replace(part, y=packed(labels[name])) for name, part in source.parts().items()}
    return DataSource(parts["train"], parts.get("val"), parts.get("test"), classes_by_output=classes)


def _labelled(source: DataSource, output: "OutputSettings") -> DataSource:
    try:
        if output.task == "multi_label":
            return named_labels(source, output.classes)
        return labelled(source, output.classes) if output.task in HAS_CLASSES else source
    except DataError as error:
        raise DataError(f"output {output.name}: {error}") from error
