"""Check that model, data and training settings fit together, before the first subtask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from vcdl.client.compile import is_own, make_loss, make_metric, make_optimizer, measures_itself
from vcdl.client.model import input_shapes, load_model, output_tensors
from vcdl.client.moments import SharedMoments
from vcdl.data.rows import Array
from vcdl.errors import JobError, ModelError
from vcdl.models.check_metrics import check_metrics, few_outputs
from vcdl.wire.inputs import InputShape, parts_of
from vcdl.wire.task import Task
from vcdl.wire.workunit import Output, Training

_BINARY = ("BinaryCrossentropy", "BinaryFocalCrossentropy", "Hinge", "SquaredHinge")
"""Losses that compare one output with a label 0 or 1."""
_OF_FLAGS = "binary_crossentropy"
_SPARSE = "sparse_categorical_crossentropy"


@dataclass(frozen=True)
class _End:
    """An output of the model, with the loss, metrics and task that the job sets for it."""

    tensor: Any
    layer: Any
    """The layer or operation that computes the output."""
    output: Output
    task: Task | None


def check_model(
    model_json: str,
    training: Training,
    input_shape: InputShape,
    y: Array,
    task: Task | None = None,
    tasks: Mapping[str, Task] = MappingProxyType({}),
) -> None:
    """Check that a model fits its samples, labels and training settings, and that Keras knows every name.

    Args:
        model_json: The model, as Keras JSON.
        training: The job's settings.
        input_shape: Shape of one sample, or that of each input by name.
        y: All labels, shape (n, …); integers are classes, floats numbers.
        task: The kind of task, which determines the form of the labels.
        tasks: The kind of task of each output by name, if the model has several.

    Raises:
        ModelError: The model must change.
        JobError: The training settings must change.
    """
    model = load_model(model_json)
    _check_precision(model)
    _check_inputs(input_shapes(model), input_shape)
    ends = _ends(model, training, task, tasks)
    optimizer, losses = _build_optimizer_and_losses(training, [end.output for end in ends.values()])
    # SharedMoments looks at the optimizer's variables, which exist only after this.
    optimizer.build(model.trainable_variables)
    SharedMoments(optimizer, training)
    # A train_step of the job's own code may compare anything with anything, so nothing can be checked beforehand.
    if measures_itself(model):
        return
    labels = parts_of(y)
    for (name, end), loss, given in zip(ends.items(), losses, few_outputs(model, input_shape), strict=True):
        try:
            _check_end(end, loss, labels[name])
            check_metrics(end.tensor, loss, end.output.metrics, given, labels[name])
        except (JobError, ModelError) as error:
            if not name:
                raise
            raise type(error)(f"output {name}: {error}") from error


def _ends(model: Any, training: Training, task: Task | None, tasks: Mapping[str, Task]) -> dict[str, _End]:
    """Pair each output of the model with its settings, keyed by name and in the model's order. Raises ModelError.

    A single output without a section in `data > outputs` has the key "".
    """
    tensors = output_tensors(model)
    if not training.outputs:
        if len(model.outputs) != 1:
            raise ModelError(
                f"the model has the outputs {', '.join(tensors)}: say in data > outputs what each of them learns"
            )
        (tensor,) = tensors.values()
        return {"": _End(tensor, _operation(tensor), Output("", training.loss, training.metrics), task)}
    outputs = {output.name: output for output in training.outputs}
    if set(outputs) != set(tensors) or len(tensors) != len(model.outputs):
        raise ModelError(
            f"the model has the outputs {', '.join(model.output_names)}, and data > outputs names "
            f"{', '.join(outputs)}: give both the same names, each once"
        )
    return {name: _End(tensor, _operation(tensor), outputs[name], tasks.get(name)) for name, tensor in tensors.items()}


def _operation(tensor: Any) -> Any:
    """Return the layer or operation that computes a tensor, inside nested models too."""
    operation, _, place = tensor._keras_history
    # A nested model is an operation as well, but its last activation belongs to a layer inside it, so descend to that
    # layer.
    inner = getattr(operation, "outputs", None)
    return operation if inner is None or inner[place] is tensor else _operation(inner[place])


def _check_end(end: _End, loss: Any, y: Array) -> None:
    shape, name = tuple(end.tensor.shape[1:]), end.output.loss.name
    if is_own(end.output.loss) or type(loss).__name__ == "CTC":  # aligns labels with a longer row of outputs
        return
    if y.dtype.kind in "iu":
        _check_classes(loss, name, shape, y)
        _check_probabilities(end.layer, loss)
        return
    _check_numbers(loss, name, shape, y)
    if end.task == "multi_label":
        _check_flags(end.layer, loss, name, y)
    else:
        _check_probabilities(end.layer, loss)


def _build_optimizer_and_losses(training: Training, outputs: Sequence[Output]) -> tuple[Any, list[Any]]:
    """Build the optimizer and the loss of each output, and try to build each metric.

    Raises:
        JobError: Keras does not know some names; the message has a line for each of them.
    """
    makers = [
        partial(make_optimizer, training.optimizer, training.learning_rate),
        *(partial(make_loss, output.loss) for output in outputs),
        *(partial(make_metric, metric) for output in outputs for metric in output.metrics),
    ]
    made, problems = [], []
    # Try all names before refusing any, so that the user can correct all mistakes of a job at once.
    for make in makers:
        try:
            made.append(make())
        except JobError as error:
            problems.append(str(error))
    if problems:
        raise JobError("\n".join(problems))
    return made[0], made[1 : 1 + len(outputs)]


def _check_precision(model: Any) -> None:
    """Refuse layers whose gradients vanish without loss scaling. Raises ModelError."""
    for layer in model._flatten_layers():
        if layer.dtype_policy.name.removeprefix("mixed_") == "float16":
            raise ModelError(
                f"the layer {layer.name} uses the precision {layer.dtype_policy.name}, which needs loss scaling; "
                "VCDL does not support that: use mixed_bfloat16, which needs none"
            )


def _check_inputs(expected: Mapping[str, tuple[int | None, ...]], given: InputShape) -> None:
    """Check that the model accepts samples of these shapes. Raises ModelError."""
    if isinstance(given, tuple):
        if "" not in expected:
            raise ModelError(
                f"the model has the inputs {', '.join(expected)}, and the data have one: "
                f"save {', '.join(f'x_train_{name}' for name in expected)}"
            )
        _check_input(expected[""], given)
        return
    if set(given) != set(expected):
        inputs = "one input" if "" in expected else f"the inputs {', '.join(sorted(expected))}"
        raise ModelError(
            f"the model has {inputs}, and the data have {', '.join(sorted(given))}: give the arrays x_train_NAME the "
            "names of the model's inputs"
        )
    for name, shape in given.items():
        if not _same(expected[name], shape):
            raise ModelError(
                f"the model takes samples of shape {expected[name]} as {name}, the data has {shape}: "
                f"begin it with keras.Input({shape}, name={name!r})"
            )


def _check_input(expected: tuple[int | None, ...], given: tuple[int, ...]) -> None:
    if not _same(expected, given):
        raise ModelError(
            f"the model takes samples of shape {expected}, the data has {given}: "
            f"begin the model with keras.Input({given})"
        )


def _check_flags(last: Any, loss: Any, name: str, y: Array) -> None:
    """Refuse a loss or last layer for exclusive classes if each label may be 0 or 1 independently of the others."""
    if type(loss).__name__ == "CategoricalCrossentropy":
        raise JobError(f"training > loss: {name} is for one class a sample, the task is multi_label: use {_OF_FLAGS}")
    _check_probabilities(last, loss)
    if type(loss).__name__ in _BINARY and _last_activation(last) == "softmax":
        # One-hot labels mean that a classification was intended, and the advice differs.
        if (y.sum(axis=-1) == 1).all():
            raise JobError(
                f"training > loss: {name} asks a question for each output, but the labels are one-hot and the model "
                "ends in softmax, which is one class a sample: use categorical_crossentropy with vcdl.train; in a job "
                f"file number the labels by argmax(axis=-1), with task: classification and the loss {_SPARSE}"
            )
        raise ModelError("the model ends in softmax, which shares one certainty among all labels: give it sigmoid")


def _check_classes(loss: Any, name: str, output_shape: tuple[int | None, ...], y: Array) -> None:
    kind, last, places = type(loss).__name__, int(y.max()), y.shape[1:]
    if kind not in ("SparseCategoricalCrossentropy", *_BINARY):
        raise JobError(f"training > loss: {name} does not fit labels that are whole numbers: use {_SPARSE}")
    if len(output_shape) != 1 + len(places) or not _same(output_shape[:-1], places):
        cure = f"one for each class: add Flatten and Dense({last + 1})"
        if places:
            cure = f"{(*places, last + 1)}: one for each class at each of the labels' places"
        raise ModelError(f"the model ends in outputs of shape {output_shape}, expected {cure}")
    outputs = output_shape[-1] or 0
    if kind in _BINARY:
        if outputs != 1 or last > 1:
            raise JobError(
                f"training > loss: {name} compares one output with labels 0 and 1; "
                f"here are {outputs} outputs and labels 0…{last}: use {_SPARSE}"
            )
    # More outputs than classes are allowed: a model that is fine-tuned may know classes which the data lack.
    elif outputs <= last:
        raise ModelError(
            f"the model ends in {outputs} outputs, the data has labels 0…{last}: give the last layer {last + 1} units"
        )


def _check_probabilities(last: Any, loss: Any) -> None:
    """Refuse logits for a loss that expects probabilities, and the reverse: such a model learns nothing."""
    if "Crossentropy" not in type(loss).__name__:
        return
    activation = _last_activation(last)
    if loss.get_config().get("from_logits"):
        if activation in ("softmax", "sigmoid"):
            raise ModelError(
                f"the model ends in {activation}, and the loss has `from_logits: true`, which expects no activation: "
                f"take from_logits out of the loss, or {activation} out of the model"
            )
    elif activation == "linear":
        raise ModelError(
            "the model ends in a Dense layer without activation, and the loss expects probabilities: give it softmax "
            "(sigmoid for one output), or the loss `from_logits: true`"
        )


def _last_activation(last: Any) -> str | None:
    """Return the name of an output layer's activation, such as "linear" or "softmax"; None if it is unknown."""
    last = getattr(last, "layer", last)  # TimeDistributed
    kind, config = type(last).__name__, last.get_config()
    if kind in ("Softmax", "Sigmoid"):
        return kind.lower()
    if kind in ("Dense", "Activation", "EinsumDense") or kind.startswith("Conv"):
        named = config["activation"]
        return named if isinstance(named, str) else None
    return None


def _check_numbers(loss: Any, name: str, output_shape: tuple[int, ...], y: Array) -> None:
    if type(loss).__name__ == "SparseCategoricalCrossentropy":
        raise JobError(f"training > loss: {name} is for classes, the task is a regression: use mean_squared_error")
    wanted = y.shape[1:] or (1,)
    if type(loss).__name__.startswith("Categorical") and wanted[-1] == 1 != output_shape[-1]:
        raise JobError(
            f"training > loss: {name} compares one-hot rows with the {output_shape[-1]} outputs, and the labels are "
            f"single numbers: use {_SPARSE}, which takes the numbers of classes (in a job file with data > task: "
            "classification)"
        )
    if len(output_shape) != len(wanted) or not _same(output_shape, wanted):
        units = "1 unit" if wanted[0] == 1 else f"{wanted[0]} units"
        cure = f"give the last layer {units}" if len(wanted) == 1 else f"end the model in Reshape({wanted})"
        raise ModelError(
            f"the model's output has shape {output_shape}, but the targets of a sample have shape {wanted}: {cure}"
        )


def _same(expected: tuple[int | None, ...], given: tuple[int, ...]) -> bool:
    """Return whether a shape fits the expected one, in which None stands for any length."""
    return len(expected) == len(given) and all(e in (None, g) for e, g in zip(expected, given, strict=True))
