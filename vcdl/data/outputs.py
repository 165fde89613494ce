"""Check the labels of several outputs and convert them to class numbers, each output separately.

The labels of all outputs are one array, with a field for each output (vcdl.wire.inputs).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vcdl.data.dataset import DataSource, Part, make_part, name_labels, number_labels
from vcdl.data.labels import Classes
from vcdl.data.rows import Array
from vcdl.errors import DataError
from vcdl.wire.inputs import pack_inputs, parts_of
from vcdl.wire.task import HAS_CLASSES

if TYPE_CHECKING:
    from vcdl.job.outputs import OutputSettings


def make_part_with_outputs(
    name: str, x: Array, labels: Mapping[str, Array], outputs: "Sequence[OutputSettings]"
) -> Part:
    """Check samples and the labels of each output, and return them as a Part.

    Args:
        name: train, val or test, for messages.
        x: The samples.
        labels: The labels by output.
        outputs: The outputs.

    Raises:
        DataError: No model could train on such data.
    """
    parts = {output.name: make_part(name, x, labels[output.name], output.task, output.name) for output in outputs}
    return Part(x, pack_inputs({of: part.y for of, part in parts.items()}))


def number_output_labels(source: DataSource, outputs: "Sequence[OutputSettings]") -> DataSource:
    """Return the source with the labels of each output that has classes converted to class numbers.

    Raises:
        DataError: Labels are not classes, or do not match those of their output.
    """
    # Treat each output as a source of its own with the same samples, so that rules and messages are those of a single
    # output.
    labels: dict[str, dict[str, Array]] = {name: parts_of(part.y) for name, part in source.parts().items()}
    classes: dict[str, Classes | None] = {}
    for output in outputs:
        of = output.name
        own = {name: Part(part.x, labels[name][of]) for name, part in source.parts().items()}
        named = _number_labels(DataSource(own["train"], own.get("val"), own.get("test")), output)
        classes[of] = named.classes
        for name, part in named.parts().items():
            labels[name][of] = part.y
    parts = {name: replace(part, y=pack_inputs(labels[name])) for name, part in source.parts().items()}
    return DataSource(parts["train"], parts.get("val"), parts.get("test"), classes_by_output=classes)


def _number_labels(source: DataSource, output: "OutputSettings") -> DataSource:
    try:
        if output.task == "multi_label":
            return name_labels(source, output.classes)
        return number_labels(source, output.classes) if output.task in HAS_CLASSES else source
    except DataError as error:
        raise DataError(f"output {output.name}: {error}") from error
