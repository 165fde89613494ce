"""The key `data > outputs`: the outputs of a model with several, with the task, loss and weight of each."""

from typing import Annotated, Literal

from vcdl.job.labels import ClassNames
from vcdl.job.named import NAMED, NAMED_AS_YAML
from vcdl.wire.task import DEFAULTS
from vcdl.wire.workunit import Named, Output
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import Section

OutputTask = Literal["classification", "regression", "multi_label", "sequence", "segmentation"]

_Named = Annotated[Named, NAMED, NAMED_AS_YAML]


class OutputSettings(Section):
    """One output, under Keras' name for it."""

    name: Annotated[str, kinds.text("[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", "the name of an output of the model")]
    task: Annotated[OutputTask, kinds.one_of(OutputTask)] = "classification"
    classes: ClassNames | None = None
    loss: _Named | None = None
    """The output's loss; None: the usual one of the task."""
    metrics: tuple[_Named, ...] | None = None
    """The output's metrics; None: the usual ones of the task."""
    weight: Annotated[float, kinds.above_zero()] = 1.0
    """The factor of its loss in the sum of all."""

    def to_wire(self) -> Output:
        """Return the output as clients receive it, with the task's usual loss and metrics where none are set."""
        usual = DEFAULTS.get(self.task, {})
        return Output(
            name=self.name,
            loss=self.loss or usual.get("loss", Named("sparse_categorical_crossentropy")),
            metrics=self.metrics if self.metrics is not None else usual.get("metrics", (Named("accuracy"),)),
            weight=self.weight,
        )
