"""Build a job's model: its JSON, and the weights of version 0."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from gc import collect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdl.client import own_code
from vcdl.client.model import freeze_later_weights, load_model, new_names
from vcdl.client.own_code import OwnCode, run_guarded
from vcdl.client.parts import model_to_json as as_json
from vcdl.errors import ModelError, one_line
from vcdl.job.code_folder import check_arguments, read_code
from vcdl.models.given_weights import copy_weights, load_given_weights, read_keras_json
from vcdl.models.hub import preset_model
from vcdl.models.lora import drawn_matrices, enable_lora, merge, quantize_frozen, revive
from vcdl.models.mlp import mlp
from vcdl.models.precision import compute_with
from vcdl.models.python_function import call_builder
from vcdl.models.resnet_v2 import resnet_v2
from vcdl.models.small_cnn import small_cnn
from vcdl.models.trained import train_only
from vcdl.wire.inputs import InputShape, Outputs
from vcdl.wire.layout import Vector, flatten, flatten_frozen, trained_weights

if TYPE_CHECKING:
    from vcdl.job.model import ModelSettings

BUILTIN = {"mlp": mlp, "small_cnn": small_cnn, "resnet_v2": resnet_v2}


@dataclass(frozen=True)
class BuiltModel:
    """A job's model before any training."""

    json: str
    """Keras' `to_json()` text, checked to be safe to load and to have float32 weights."""
    weights: Vector
    """Initial values of the trained weights, shape (n,)."""
    frozen: Vector
    """Values of the weights that no training changes, shape (m,)."""


def build_model(
    settings: "ModelSettings",
    input_shape: InputShape,
    outputs: Outputs,
    task: str = "classification",
    seed: int = 0,
    start: Any = None,
    precision: str = "float32",
) -> BuiltModel:
    """Build a job's model, with the weights that the job names, or fresh ones.

    Sets the process' random seeds, and runs the job's own code. Fresh weights are reproducible: they depend on the
    model's JSON, `seed`, the backend and the version of Keras only.

    Args:
        settings: The job's section `model`.
        input_shape: Shape of a sample, or that of each input by name. It shapes a built-in model, and is passed to a
            `python` function that takes it.
        outputs: Number of classes or of values to predict, by name if the model has several outputs; used likewise.
        task: The job's `data > task`.
        seed: Seed of fresh weights.
        start: A Keras model from which the job continues, or None.
        precision: Keras' precision policy for the layers.

    Raises:
        ModelError: The model cannot be built, or a client could not load it.
    """
    import keras

    code = _load_code(settings)
    keras.utils.set_random_seed(seed)
    # The start may contain the matrices of an earlier LoRA. A model that the job names has plain kernels, and a new
    # limit starts from plain kernels, so merge them.
    if start is not None and (settings.is_named or settings.is_limited):
        start = merge(start)
    made = None if settings.is_named else start
    drawn_layers: tuple[str, ...] = ()
    if settings.python is not None:
        made = _call_user_function(settings, settings.python, input_shape, outputs, code)
    if settings.hub is not None:
        preset = preset_model(settings.hub, input_shape, outputs, task)
        made, drawn_layers = preset.keras, preset.drawn
    if made is not None:
        freeze_later_weights(made)
    given = _make_json(settings, input_shape, outputs, task) if made is None else _to_json(made, settings.origin, code)
    # From here on use the model that its JSON describes, not the user's object, because clients have only the JSON.
    model_json = _complete_json(given, settings, precision, code)
    keras.utils.set_random_seed(seed)
    # Set the seed again right before the weights are created, so that they do not depend on random numbers that the
    # user's function drew. initial_weights creates the same ones from the JSON alone.
    model = load_model(model_json)
    drawn = drawn_matrices(model)
    _give_weights(model, settings, made, start)
    revive(model, drawn)
    if settings.is_limited:
        model = _limit_training(model, settings, drawn_layers, code)
        collect()  # frees the model before the limit, which reference cycles keep alive
        model_json = _to_json(model, settings.origin, code)
    if model.weights and not model.trainable_weights:
        raise ModelError("every layer of the model is frozen: name those to train in model > train")
    return BuiltModel(model_json, flatten(model), flatten_frozen(model))


def _complete_json(given: str, settings: "ModelSettings", precision: str, code: OwnCode | None) -> str:
    """Load a model's JSON and serialise it again, with all defaults and the precision. Raises ModelError."""
    described = load_model(given)
    if precision != "float32":
        compute_with(described, precision)
    text = _to_json(described, settings.origin, code)
    # A large model must be freed before the next copy is built, and this reference would keep it alive.
    del described
    collect()
    return text


def _load_code(settings: "ModelSettings") -> OwnCode | None:
    code = permit_own_code(settings)
    if code is not None:
        code.load()
        new_names()
    return code


def _call_user_function(
    settings: "ModelSettings", function: str, input_shape: InputShape, outputs: Outputs, code: OwnCode | None
) -> Any:
    """Call the user's function and return its model. Raises ModelError.

    A model of the job's own code that is not built yet is called once, so that its weights exist.
    """
    made = call_builder(function, input_shape, outputs, None if code else settings.python_folder)
    if code is not None and not made.built:
        run_guarded(f"the model {type(made).__name__}", lambda: made(_inputs(input_shape)))
    return made


def _give_weights(model: Any, settings: "ModelSettings", made: Any, start: Any) -> None:
    """Set the model's weights to those of `made`, then of the job's start, then of the named file, if there are any."""
    if made is not None:
        _check_trained(model, made)
        copy_weights(model, made, settings.origin)
    # The order matters: weights of a named file replace those of the continued run, which replace fresh ones.
    if start is not None and made is not start:
        copy_weights(model, start, str(settings.from_run))
    file = settings.weights or settings.keras
    if file is not None:
        load_given_weights(model, file)


def build_model_json(
    settings: "ModelSettings",
    input_shape: InputShape,
    outputs: Outputs,
    task: str = "classification",
    start: Any = None,
    precision: str = "float32",
) -> str:
    """Build the job's model as `build_model` does, and return only its JSON. Raises ModelError."""
    return build_model(settings, input_shape, outputs, task, start=start, precision=precision).json


def initial_weights(model_json: str, seed: int) -> Vector:
    """Return the initial values of the weights that training changes, for a model and a seed.

    Frozen weights are left out. The result equals the weights that `build_model` creates from the same JSON and seed.
    As a side effect, the random seeds of Python, NumPy and the backend are set for the whole process.

    Args:
        model_json: The model, as `build_model` returns it in `json`.
        seed: The seed of the initializers.

    Returns:
        A float32 vector of shape (n,).

    Raises:
        ModelError: The model cannot be loaded.
    """
    import keras

    keras.utils.set_random_seed(seed)
    return flatten(load_model(model_json))


def permit_own_code(settings: "ModelSettings") -> OwnCode | None:
    """Read the code that a job brings, and permit this process to run it; return None if it brings none.

    Raises:
        ModelError: The code cannot be read.
    """
    if settings.code is None:
        return None
    own_code.permit()
    return read_code(settings.code)


def _inputs(shape: InputShape) -> Any:
    """Return the symbolic input for samples of this shape, or a dict of them by the inputs' names."""
    import keras

    if isinstance(shape, tuple):
        return keras.Input(shape)
    return {name: keras.Input(one, name=name) for name, one in shape.items()}


def _limit_training(model: Any, settings: "ModelSettings", drawn_layers: Sequence[str], code: OwnCode | None) -> Any:
    """Limit training to the layers that the job names, and return the model rebuilt from its JSON. Raises ModelError.

    With `lora` and without `train`, the layers in `drawn_layers`, which have random weights, are trained as well:
    frozen, they would limit what the adapters before them can learn.

    Args:
        model: The whole model, with its weights; its layers are frozen and adapted in place.
        settings: The job's section `model`.
        drawn_layers: Names of the layers that got no given weights.
        code: The job's own code, or None.
    """
    if settings.train is not None or settings.lora is not None:
        train_only(model, drawn_layers if settings.train is None else settings.train)
    if settings.lora is not None:
        enable_lora(model, settings.lora)
    if settings.frozen == "int8":
        quantize_frozen(model)
    # Do not initialise the weights, because they are copied below: that would only take a second model's time and
    # memory.
    described = load_model(_to_json(model, settings.origin, code), draws_weights=False)
    _check_trained(described, model)
    for ours, theirs in zip(described.weights, model.weights, strict=True):  # one by one, because a list takes memory
        ours.assign(theirs)
    return described


def _check_trained(described: Any, model: Any) -> None:
    """Check that a model has all of its weights, and that its JSON keeps their order and which of them are trained.

    Raises ModelError.
    """
    # Check this before the names, because a missing weight shifts all later names.
    if len(model.weights) < len(described.weights):
        raise ModelError(
            "the model does not have all of its weights yet: model.build(shape) makes none for a class without a "
            "method `build`; call the model once instead, model(keras.ops.zeros((1, *input_shape)))"
        )
    if _names(trained_weights(described)) != _names(trained_weights(model)):
        raise ModelError("the model's JSON does not keep which layers are frozen: freeze whole layers, not their parts")
    if _names(described.weights) != _names(model.weights):
        raise ModelError("the model's JSON has its weights in another order: give each layer a name of its own")


def _names(weights: Sequence[Any]) -> list[str]:
    """Return each weight's name with its layer's, without enclosing models, whose names JSON does not keep."""
    return ["/".join(weight.path.split("/")[-2:]) for weight in weights]


def json_in_file(settings: "ModelSettings") -> str | None:
    """Return the unchecked JSON of the job's model file, with the job's own code, or None without a file.

    Raises ModelError.
    """
    if settings.keras_json is None and settings.keras is None:
        return None
    text = read_keras_json(settings.keras) if settings.keras is not None else _read(Path(str(settings.keras_json)))
    code = permit_own_code(settings)
    try:
        return text if code is None else code.with_model(text)
    except ValueError:
        return text  # not JSON: the caller, who loads it, reports that


def _make_json(settings: "ModelSettings", input_shape: InputShape, outputs: Outputs, task: str) -> str:
    in_file = json_in_file(settings)
    if in_file is not None:
        return in_file
    if settings.builtin is None or settings.builtin.name not in BUILTIN:
        raise ModelError(f"there is no built-in model {settings.builtin!r}: choose {', '.join(BUILTIN)}")
    for ends, several in (("input", input_shape), ("output", outputs)):
        if isinstance(several, Mapping):
            raise ModelError(
                f"{settings.builtin.name} has one {ends}, and the data have {', '.join(several)}: give a model of your "
                "own, by model > keras or model > python"
            )
    _check_has_ending(settings.builtin.name, task)
    builder: Any = BUILTIN[settings.builtin.name]
    try:
        return str(builder(input_shape, outputs, task, **settings.builtin.arguments).to_json())
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{settings.builtin.name} cannot be built for samples of shape {input_shape}: {error}"
        ) from error


def _check_has_ending(builtin: str, task: str) -> None:
    """Refuse a task whose outputs this built-in model cannot have, such as one for each pixel. Raises ModelError."""
    if task in ("sequence", "segmentation") or (task == "autoencoder" and builtin != "mlp"):
        wanted = {"sequence": "outputs for each step", "segmentation": "outputs for each pixel"}.get(task, "its input")
        raise ModelError(
            f"{builtin} gives one answer a sample, and data > task: {task} wants {wanted}: "
            "give a model of your own with model > python, keras or keras_json"
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read ({error}): write it with model.to_json()") from error


def _to_json(model: Any, origin: str, code: OwnCode | None) -> str:
    if code is not None:
        check_arguments(model, code)
    try:
        text = as_json(model)
    except ModelError:
        raise
    except Exception as error:  # a custom class may raise anything here
        cure = "use Keras' own layers only" if code is None else "its class needs get_config, as Keras' guides show"
        raise ModelError(f"the model of {origin} has no JSON ({one_line(error)}): {cure}") from error
    return text if code is None else code.with_model(text)
