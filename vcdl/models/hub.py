"""Build a job's model from a preset: a folder that KerasHub's `save_to_preset` wrote, or that was downloaded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.errors import ModelError, one_line
from vcdl.models.hub_inline import as_given, trace
from vcdl.wire.inputs import InputShape, Outputs

_ACTIVATIONS = {"classification": "softmax", "multi_label": "sigmoid", "regression": None}
"""Activation of a classifier's last layer by task: the usual losses of VCDL take probabilities."""
_CONFIG, _TASK_CONFIG, _TOKENIZER = "config.json", "task.json", "tokenizer.json"
_TOKENS, _PADDING = "token_ids", "padding_mask"


def keras_hub() -> Any:
    """Import KerasHub and return it. Raises ModelError if it is not installed."""
    try:
        import keras_hub
    except ImportError as error:
        raise ModelError(
            f"a preset is read by the package keras-hub, which is not here ({one_line(error)}): pip install 'vcdl[hub]'"
        ) from error
    return keras_hub


@dataclass(frozen=True)
class PresetModel:
    """A preset's model, converted to Keras' own layers."""

    keras: Any
    drawn: tuple[str, ...]
    """Names of the layers that the preset has no weights for and that start from random ones, such as a new last layer.
    """


def preset_model(folder: Path, input_shape: InputShape, outputs: Outputs, task: str) -> PresetModel:
    """Build a preset's model for a job, converted to Keras' own layers. Raises ModelError.

    Args:
        folder: The preset.
        input_shape: Shape of a sample, or that of each input by name.
        outputs: Number of classes or of values to predict.
        task: The job's `data > task`.
    """
    source = preset_task(folder, input_shape, outputs, task)
    made, variables = _trace_model(source, input_shape, task)
    if task == "sequence" or _classes_in(folder) == outputs:
        return PresetModel(made, ())
    # For another number of classes, KerasHub loads only the weights of the backbone; all others are random.
    loaded = {id(weight) for weight in source.backbone.weights}
    drawn = (one for one in made.layers if any(id(variables[weight.path]) not in loaded for weight in one.weights))
    return PresetModel(made, tuple(layer.name for layer in drawn))


def preset_task(folder: Path, input_shape: InputShape, outputs: Outputs, task: str, *, weights: bool = True) -> Any:
    """Load KerasHub's model for a task from a preset.

    Args:
        folder: The preset.
        input_shape: Shape of a sample: tokens have one axis, images three.
        outputs: Classes, or numbers to predict. A classifier with another number of them gets a fresh last layer.
        task: The job's `data > task`.
        weights: Load the preset's weights. Without them, all weights are fresh.

    Raises:
        ModelError: The folder holds no preset, or KerasHub has no such model for it.
    """
    models = keras_hub().models
    check_preset(folder)
    if isinstance(outputs, Mapping) or task not in (*_ACTIVATIONS, "sequence"):
        raise ModelError(
            f"model > hub has no model for data > task: {task}: use classification, multi_label, regression or "
            "sequence, or build one of the preset's backbone in model > python"
        )
    is_image = isinstance(input_shape, tuple) and len(input_shape) == 3
    kind = "CausalLM" if task == "sequence" else "ImageClassifier" if is_image else "TextClassifier"
    try:
        if task == "sequence":
            return models.CausalLM.from_preset(str(folder), load_weights=weights, dtype="float32")
        # With num_classes KerasHub creates a fresh last layer, which is needed for another number of classes.
        has_head = _classes_in(folder) == outputs
        size = {} if has_head else {"num_classes": outputs}
        return getattr(models, kind).from_preset(
            str(folder), load_weights=weights, dtype="float32", activation=_ACTIVATIONS[task], **size
        )
    except Exception as error:  # of KerasHub, of every kind
        raise ModelError(f"KerasHub loads no {kind} from {folder}: {one_line(error)[:300]}") from error


def check_preset(folder: Path) -> None:
    """Refuse a folder without the configuration that `save_to_preset` writes. Raises ModelError."""
    if not (folder / _CONFIG).is_file():
        raise ModelError(
            f"{folder} is no preset, it has no {_CONFIG}: write one with model.save_to_preset(folder), for a model "
            'such as keras_hub.models.TextClassifier.from_preset("bert_tiny_en_uncased", num_classes=2)'
        )


def write_preset(base: Path, model: Any, task: str, output: Path) -> None:
    """Write a preset with the weights of a trained model.

    Args:
        base: The preset that the model was made of. Weights of it that the model lacks are written unchanged.
        model: As `vcdl.run.export.export_model` wrote it.
        task: The job's `data > task`.
        output: Folder to write.

    Raises:
        ModelError: The folder no longer holds that preset, or the model also scales samples or targets.
    """
    shapes = {str(tensor.name): tuple(tensor.shape[1:]) for tensor in model.inputs}
    input_shape: InputShape = shapes if len(shapes) > 1 else next(iter(shapes.values()))
    source = preset_task(base, input_shape, int(model.outputs[0].shape[-1]), task)
    made, variables = _trace_model(source, input_shape, task)
    trained = {weight.path: weight for weight in model.weights}
    # Compare the size as well, because a preset of the same depth with other widths has the same paths.
    if made.count_params() != model.count_params() or set(trained) != set(variables):
        raise ModelError(
            f"the model does not have exactly the weights of the preset {base}: it also scales samples or targets, or "
            "the folder now holds another preset; export it with -o FILE.keras"
        )
    for path, variable in variables.items():
        # A weight of a KerasHub layer itself was trained as the row of an Embedding, so only its shape differs.
        variable.assign(np.reshape(trained[path], variable.shape))
    if hasattr(source.preprocessor, "sequence_length"):
        source.preprocessor.sequence_length = next(iter(shapes.values()))[0]
    source.save_to_preset(str(output))


def takes_texts(folder: Path) -> bool:
    """Return whether a preset takes texts, that is, contains a tokenizer."""
    return (folder / _TOKENIZER).is_file()


def source_keys(folder: Path) -> dict[str, Any]:
    """Return the keys that a preset sets in `data > from`: its tokenizer and length in tokens, or its picture size.

    It is empty if the preset's files name none of them.
    """
    if takes_texts(folder):
        length = _in_config(folder / "preprocessor.json", "sequence_length")
        return {"tokenizer": str(folder), **({"window": length} if isinstance(length, int) else {})}
    size = _in_config(folder / "image_converter.json", "image_size")
    return {"size": list(size)} if size else {}


def _classes_in(folder: Path) -> int | None:
    """Return the number of classes of a preset's classifier, or None without one."""
    count = _in_config(folder / _TASK_CONFIG, "num_classes")
    return count if isinstance(count, int) else None


def _in_config(file: Path, key: str) -> Any:
    """Return a setting in a file of a preset, or None if the file lacks it."""
    try:
        return json.loads(file.read_text("utf-8"))["config"].get(key)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _trace_model(source: Any, input_shape: InputShape, task: str) -> tuple[Any, dict[str, Any]]:
    """Return the model to train, and KerasHub's variables keyed by the path of the weight that was made of each."""
    shapes = _shapes(source, input_shape)
    made, variables = trace(source, shapes)
    by_path = {weight.path: variable for weight, variable in zip(made.weights, variables, strict=True)}
    return _with_ends(made, source, input_shape, task), by_path


def _shapes(source: Any, input_shape: InputShape) -> dict[str, tuple[int, ...]]:
    names = [str(tensor.name) for tensor in source.inputs]
    if isinstance(input_shape, Mapping):
        unknown = sorted(set(input_shape) - set(names))
        if unknown:
            raise ModelError(f"the preset has no input {unknown[0]}: it has {', '.join(names)}")
        # Inputs that the data lack are derived from the tokens and have their length.
        first = next(iter(input_shape.values()))
        return {name: tuple(input_shape.get(name, first)) for name in names}
    return dict.fromkeys(names, tuple(input_shape))


def _with_ends(made: Any, source: Any, input_shape: InputShape, task: str) -> Any:
    """Return the model for the job's data: it derives missing inputs from the tokens, and ends in probabilities.

    The scale that the preset expects of images becomes a layer.

    Args:
        made: The converted model, with all inputs of KerasHub's model.
        source: KerasHub's model, whose preprocessor has the scale and the padding token.
        input_shape: Shape of a sample in the data, or that of each input by name.
        task: The job's `data > task`.
    """
    import keras

    given = {str(tensor.name): tensor for tensor in made.inputs}
    if isinstance(input_shape, Mapping):
        inputs = {name: _input(given[name]) for name in input_shape}
    else:
        only = next(iter(given)) if len(given) == 1 else _TOKENS
        inputs = {only: _input(given[only])}
    # Mask and segments follow from the tokens, so they need not be in the shards (docs/decisions/143).
    values = {name: inputs[name] if name in inputs else _derive_input(name, inputs, source) for name in given}
    converter = getattr(getattr(source, "preprocessor", None), "image_converter", None)
    if converter is not None:
        name, image = next(iter(values.items()))
        values[name] = keras.layers.Rescaling(_number(converter.scale, 1.0), _number(converter.offset, 0.0))(image)
    outputs = made.call(as_given(list(values.values())))
    # KerasHub's language models end in logits, and the losses of VCDL take probabilities.
    if task == "sequence":
        outputs = keras.layers.Softmax(name="probabilities")(outputs)
    return keras.Model(as_given(list(inputs.values())), outputs, name=made.name)


def _input(tensor: Any) -> Any:
    import keras

    return keras.Input(tuple(tensor.shape[1:]), dtype=tensor.dtype, name=str(tensor.name))


def _number(value: Any, default: float) -> Any:
    return default if value is None else np.asarray(value).tolist()


def _derive_input(name: str, inputs: Mapping[str, Any], source: Any) -> Any:
    """Return the padding mask or segments that the preset's packer would give to these tokens. Raises ModelError."""
    from keras import ops

    tokens = inputs.get(_TOKENS)
    if tokens is None or name not in (_PADDING, "segment_ids"):
        raise ModelError(f"the preset's model takes {name}, which the data do not have: give x_train_{name} in the npz")
    if name != _PADDING:
        return ops.zeros_like(tokens)
    pad = getattr(getattr(getattr(source, "preprocessor", None), "tokenizer", None), "pad_token_id", None)
    if pad is None or "CausalLM" in type(source).__name__:  # windows of a text are full
        return ops.ones_like(tokens)
    return ops.cast(ops.not_equal(tokens, int(pad)), "int32")
