"""Build a model from its JSON, which `vcdl.client.model_json` checks, and find its inputs, outputs and last layers."""

from functools import partial
from typing import Any

from vcdl.client.allowed import RANDOM_INITIALIZERS
from vcdl.client.model_json import objects_in, parse_model
from vcdl.client.own_code import run_guarded
from vcdl.client.parts import apply_parts
from vcdl.errors import ModelError, one_line
from vcdl.wire.layout import Vector, assign_frozen

TARGET_SCALE = "target_scale"
"""The name of the last layer of a model whose targets are of an unusual scale (vcdl.models.scaled_output)."""


def load_model(model_json: str, frozen: Vector | None = None, *, draws_weights: bool = True) -> Any:
    """Check a model's JSON, and build the model from it as client, evaluator and export do.

    Args:
        model_json: Text that `to_json()` wrote, with the job's own code if it has any.
        frozen: Weights that no training changes, shape (m,), or None for fresh ones.
        draws_weights: Initialise weights at random. Otherwise those with a random initializer are zeros, and the
            initializer is replaced in the model's configuration as well.

    Raises:
        ModelError: The text describes no model, or one that is not safe to load.
        WeightsFileError: `frozen` belongs to another model.
    """
    config, code, parts = parse_model(model_json)
    objects = {} if code is None else code.objects(objects_in(config))
    scales = _scales_of_lora(config)
    if not draws_weights:
        _draw_nothing(config)
    import keras

    if code is not None:
        new_names()
    try:
        model = keras.saving.deserialize_keras_object(config, custom_objects=objects, safe_mode=True)
    except Exception as error:  # Keras raises nearly every kind of exception for a configuration it cannot build
        raise ModelError(
            f"Keras {keras.__version__} cannot build the model from its JSON: {one_line(error)}"
        ) from error
    if not isinstance(model, keras.Model):
        raise ModelError("the JSON describes a part of a model, not a model: write it with model.to_json()")
    if code is not None:
        know_ends(model)
    freeze_later_weights(model)
    for layer in model._flatten_layers():
        if isinstance(alpha := scales.get(layer.name), int | float) and hasattr(layer, "lora_alpha"):
            layer.lora_alpha = alpha  # Keras uses the rank instead
    apply_parts(model, parts)
    _check_weights(model)
    if frozen is not None:
        assign_frozen(model, frozen)
        _finish_state(model)
    return model


def _scales_of_lora(config: dict[str, Any]) -> dict[str, Any]:
    """Return each layer's `lora_alpha`, keyed by layer name. Call it before Keras consumes the configuration."""
    configs = [part["config"] for part in objects_in(config) if isinstance(part.get("config"), dict)]
    return {str(one.get("name")): one.get("lora_alpha") for one in configs}


def _check_weights(model: Any) -> None:
    if not model.built:
        raise ModelError("the model does not know the shape of its input: start it with keras.Input(shape)")
    stateful = next((layer.name for layer in model._flatten_layers() if getattr(layer, "stateful", False)), None)
    if stateful is not None:
        raise ModelError(
            f"the layer {stateful} is stateful: it keeps its state from batch to batch, but subtasks draw batches at "
            "random, on any computer; build it with stateful=False, and the input without a batch size"
        )
    odd = next((weight for weight in model.weights if not _can_be_shared(weight)), None)
    if odd is not None:
        raise ModelError(
            f"the weights {odd.path} are {odd.dtype}: only float32 is shared; use dtype float32 or a mixed policy"
        )


def _finish_state(model: Any) -> None:
    """Let layers compute values derived from their weights, as Keras does when it loads a `.keras` file.

    Assigning a variable does not notify its layer. An adapted Normalization keeps mean and variance as constants, which
    would stay at 0 and 1: a run would train on raw numbers, while the exported model normalises. Each such layer reads
    its own variables back, by Keras' own method. All these variables are frozen, so no later `assign` changes them.
    """
    for layer in model._flatten_layers(include_self=False):
        is_own = not type(layer).load_own_variables.__module__.startswith("keras.")  # of the job's own code
        if hasattr(layer, "finalize_state") or is_own:
            run_guarded(f"the layer {layer.name}", partial(_read_back, layer))


def _read_back(layer: Any) -> None:
    values: dict[str, Any] = {}
    layer.save_own_variables(values)
    layer.load_own_variables(values)


def freeze_later_weights(model: Any) -> None:
    """Freeze the weights that a frozen layer builds inside itself, such as attention's projections.

    Keras builds them as trained.
    """
    import keras

    for layer in model._flatten_layers(include_self=False):
        if not layer.trainable and not isinstance(layer, keras.Model | keras.layers.Wrapper):  # JSON has their parts
            for part in layer._flatten_layers(include_self=False):
                part.trainable = False


def thaw_as_loaded(model: Any) -> None:
    """Undo `freeze_later_weights`: train the same weights as Keras does after loading the saved model."""
    import keras

    for layer in model._flatten_layers(include_self=False):
        if not layer.trainable and not isinstance(layer, keras.Model | keras.layers.Wrapper):
            for part in layer._flatten_layers(include_self=False):
                part.trainable = True


def _can_be_shared(weight: Any) -> bool:
    """Return whether a weight is float32, or a count that no training changes (in a Normalization layer)."""
    return weight.dtype == "float32" or (weight.dtype.startswith("int") and not weight.trainable)


def own_parts(model_json: str) -> dict[str, Any]:
    """Return the classes and functions of the job's own code in a model, keyed by the names that Keras looks up.

    Raises:
        ModelError: The code cannot be loaded.
    """
    config, code, _ = parse_model(model_json)
    return {} if code is None else code.objects(objects_in(config))


def new_names() -> None:
    """Restart the numbers that Keras appends to names, for the whole process.

    A subclass names its layers when it is built, and names identify weights, so they must be equal in every process.
    """
    from keras.src.utils.naming import reset_uids  # `keras.utils.clear_session` would invalidate other models as well

    reset_uids()


def know_ends(model: Any) -> None:
    """Set `inputs` and `outputs` of a subclassed model, as other models have them, by calling it once.

    A model that is not built is left unchanged.

    Raises:
        ModelError: They are unknown.
    """
    if getattr(model, "inputs", None) or not model.built:
        return
    import keras

    def ends() -> None:
        shapes = model.get_build_config()["input_shape"]
        given = keras.tree.map_shape_structure(lambda shape: keras.Input(shape[1:]), shapes)
        outputs = model(given)
        model.inputs, model.outputs = keras.tree.flatten(given), keras.tree.flatten(outputs)
        model.output_names = [str(tensor.name) for tensor in model.outputs]

    run_guarded(f"the model {type(model).__name__}", ends)


def _draw_nothing(config: Any) -> None:
    """Replace random initializers in the configuration by zeros: JAX compiles a program for each shape to draw."""
    for part in objects_in(config):
        if part.get("module") == "keras.initializers" and part["class_name"] in RANDOM_INITIALIZERS:
            part |= {"class_name": "Zeros", "config": {}, "registered_name": None}


def input_shapes(model: Any) -> dict[str, tuple[int | None, ...]]:
    """Return the shape of one sample, keyed by the model's input; "" is the key of a single one.

    Returns:
        Shapes, with None for any length.
    """
    shapes = {str(tensor.name): tuple(tensor.shape[1:]) for tensor in model.inputs}
    return shapes if len(shapes) > 1 else {"": next(iter(shapes.values()))}


def output_tensors(model: Any) -> dict[str, Any]:
    """Return the model's symbolic outputs, keyed by the names used for losses and labels."""
    if len(model.outputs) == 1:  # a Sequential model has nothing but the tensor
        return {str(model.outputs[0]._keras_history.operation.name): model.outputs[0]}
    if isinstance(model.output, dict):
        return dict(model.output)
    return dict(zip(model.output_names, model.outputs, strict=True))


def last_layers(model: Any) -> set[int]:
    """Return the ids of the last layers with weights on each path to an output, and of all layers inside them."""
    import keras

    last: set[int] = set()
    ends = list(model.outputs)
    while ends:
        layer, call, _ = ends.pop()._keras_history
        if isinstance(layer, keras.Model) and layer is not model and hasattr(layer, "outputs"):
            last |= last_layers(layer)
        elif isinstance(layer, keras.Layer):
            last |= {id(part) for part in layer._flatten_layers()}
        if not isinstance(layer, keras.Layer) or not layer.weights:
            ends += layer._inbound_nodes[call].input_tensors
    return last


def target_scale(model: Any) -> float:
    """Return the mean factor of a model's scaling layer (vcdl.models.scaled_output), or 1 without such a layer."""
    import numpy as np

    last = model.layers[-1] if model.layers else model
    return float(np.mean(last.scale)) if last.name == TARGET_SCALE else 1.0
