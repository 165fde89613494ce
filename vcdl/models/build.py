"""Build a job's model as JSON, and its initial weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdl.client.model import load_model
from vcdl.errors import ModelError
from vcdl.models.mlp import mlp
from vcdl.models.python_function import call_builder
from vcdl.models.resnet_v2 import resnet_v2
from vcdl.models.small_cnn import small_cnn
from vcdl.wire.weights import Vector, flatten

if TYPE_CHECKING:
    from vcdl.job.model import ModelSettings

BUILTIN = {"mlp": mlp, "small_cnn": small_cnn, "resnet_v2": resnet_v2}


def build_model_json(
    settings: "ModelSettings",
    input_shape: tuple[int, ...],
    outputs: int,
    task: str = "classification",
) -> str:
    """The model as Keras' `to_json()` text, checked to be safe to load and to have float32 weights.

    `input_shape` is that of one sample, `outputs` the number of classes or of numbers to predict. Both shape a
    built-in model, and are passed to a `python` function that takes them. Raises ModelError.
    """
    return str(load_model(_given_json(settings, input_shape, outputs, task)).to_json())


def initial_weights(model_json: str, seed: int) -> Vector:
    """The model's initial weights, shape (n,), determined by JSON, seed, backend and Keras version.

    Sets the process' random seeds: Keras has no other way to seed the initialisers of a whole model. Raises
    ModelError.
    """
    import keras

    keras.utils.set_random_seed(seed)
    return flatten(load_model(model_json))


def _given_json(settings: "ModelSettings", input_shape: tuple[int, ...], outputs: int, task: str) -> str:
    if settings.keras_json is not None:
        return _read(settings.keras_json)
    if settings.python is not None:
        return _to_json(call_builder(settings.python, input_shape, outputs, settings.python_folder), settings.python)
    if settings.builtin is None or settings.builtin.name not in BUILTIN:
        raise ModelError(f"there is no built-in model {settings.builtin!r}: choose {', '.join(BUILTIN)}")
    builder: Any = BUILTIN[settings.builtin.name]
    try:
        return str(builder(input_shape, outputs, task, **settings.builtin.arguments).to_json())
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{settings.builtin.name} cannot be built for samples of shape {input_shape}: {error}"
        ) from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read ({error}): write it with model.to_json()") from error


def _to_json(model: Any, origin: str) -> str:
    try:
        return str(model.to_json())
    except Exception as error:  # a custom class may raise anything here
        raise ModelError(f"the model of {origin} has no JSON ({error}): use Keras' own layers only") from error
