"""Turn a model that holds KerasHub's layers into one of Keras' own layers, which any client loads.

A client runs no code of a job and has no KerasHub. Most of KerasHub's layers only combine Keras' layers and operations,
so they need not travel: their `call` runs once on symbolic tensors, and what it does becomes nodes of a functional
model. Three things that a layer may do have no node of their own and are replaced while the model is traced:

1. A weight that a layer of KerasHub holds itself becomes the only row of an `Embedding` (`_Trace._holding`).
2. A size of the batch, unknown in a graph, is a number that no other size is a multiple of (`vcdl.models.hub_ops`).
3. A function of KerasHub's as a layer's activation becomes an operation behind the layer.

Keras' own layers are copied under names that say the layers around them, which repeat in each block; the given model
keeps its own. The result is built anew from the JSON with the given weights. Both models then predict a drawn batch: a
difference is an error, so that no model is trained that is not the one given.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from vcdl.client.allowed import LEFT_OUT
from vcdl.client.model import load_model
from vcdl.client.model_json import parse_config
from vcdl.errors import ModelError, one_line
from vcdl.models.hub_ops import Batch, replace_function, symbolic_operations

PACKAGE = "keras_hub"
_CURE = "choose another backbone (docs/kerashub.md)"
_ASKS_TRAINING = re.compile(r"\b(if|and|or) (not )?training\b")
_SAMPLES = 3
"""Samples that both models predict: more than one, because a batch of 1 would hide errors that depend on its size."""
_TOLERANCE = 1e-5
"""Largest difference of predictions, relative to the largest of them, because the same operations fused in another
order differ by some 1e-7; a lost mask or activation differs by 1e-3 and more."""


def holds_hub_layers(model: Any) -> bool:
    """Return whether a Keras model is an object of KerasHub, or contains layers of it."""
    return any(map(_is_hub, model._flatten_layers()))


def inline_model(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return a model of Keras' own layers with the same weights and predictions.

    Args:
        model: A built functional or sequential model.
        shapes: Shape of one sample by the name of the input; inputs that are not named keep their shape.

    Raises:
        ModelError: A layer cannot be converted. The message names the layer and the reason.
    """
    return trace(model, shapes)[0]


def trace(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Any, list[Any]]:
    """Convert a model to Keras' own layers, and say which variable of the given model each of its weights comes from.

    Args:
        model: A built functional or sequential model. It is not changed.
        shapes: Shape of one sample by the name of the input; inputs that are not named keep their shape.

    Returns:
        The converted model, and for each of its weights, in order, the variable of `model` with the same values.

    Raises:
        ModelError: A layer cannot be converted, or the converted model predicts something else.
    """
    import keras

    inputs = [_input(tensor, shapes) for tensor in model.inputs]
    tracer = _Trace(inputs)
    with tracer.running():
        outputs = tracer.call_model(model, inputs)
        try:
            traced = keras.Model(as_given(inputs), outputs, name=model.name)
            text = traced.to_json()
        except Exception as error:  # of Keras, of every kind
            raise _inline_error(model, error) from error
        parse_config(text)
        sources = {layer.name: tracer.source_variables(layer) for layer in traced.layers}
    # Compare the model that a client will build from the JSON, not the traced one.
    made = load_model(text)
    for layer in made.layers:
        layer.set_weights([np.reshape(v, w.shape) for v, w in zip(sources[layer.name], layer.weights, strict=True)])
    _compare(model, made, inputs)
    behind = {id(w): v for layer in made.layers for w, v in zip(layer.weights, sources[layer.name], strict=True)}
    return made, [behind[id(weight)] for weight in made.weights]


def as_given(inputs: list[Any]) -> Any:
    """Return the inputs as Keras expects them: a single one without its list."""
    return inputs[0] if len(inputs) == 1 else inputs


def _input(tensor: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    import keras

    name = str(tensor.name)
    shape = shapes.get(name, tuple(tensor.shape[1:]))
    if None in shape:
        raise ModelError(
            f"the input {name} has no fixed shape {shape}: KerasHub's models need one, give samples of one length"
        )
    if len(shape) != len(tensor.shape) - 1:
        raise ModelError(f"the input {name} takes samples of {len(tensor.shape) - 1} axes, and the data have {shape}")
    return keras.Input(shape, dtype=tensor.dtype, name=name)


def _is_hub(layer: Any) -> bool:
    return type(layer).__module__.partition(".")[0] == PACKAGE


def _inline_error(layer: Any, error: Exception) -> ModelError:
    return ModelError(f"{_kind(layer)} cannot be made of Keras' own layers ({_short(error)}): {_CURE}")


def _short(error: Exception) -> str:
    return one_line(error)[:300]


def _kind(layer: Any) -> str:
    return f"KerasHub's {type(layer).__name__} {layer.name!r}"


class _Trace:
    """State of one conversion of a model: the layers copied so far, and the weights replaced by tensors."""

    def __init__(self, inputs: list[Any]) -> None:
        import keras

        self._real: Callable[..., Any] = keras.layers.Layer.__call__
        self._batch = Batch(inputs[0])
        self._inside = False
        """Whether a layer of Keras' own is being called, whose inner calls must not be traced."""
        self._around: list[str] = []
        """Names of KerasHub's layers that are being called, the outermost first."""
        self._copies: dict[int, tuple[Any, Any]] = {}
        """Each layer of Keras' own with its copy in the traced model, keyed by the layer's id.

        The layer is kept so that its id is not reused.
        """
        self._held: dict[int, tuple[Any, Any]] = {}
        """Each weight of a KerasHub layer with the symbolic tensor that replaces it, keyed by the weight's id."""
        self._sources: dict[str, list[Any]] = {}
        self._taken: set[str] = {str(tensor.name) for tensor in inputs}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Replace Keras' `Layer.__call__` within the block, so that calls inside KerasHub's layers are traced.

        Not thread-safe: the replacement holds for the whole process.
        """
        import keras

        trace = self

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            # Outside KerasHub's layers, and inside a layer of Keras' own, Keras records the calls as usual.
            if trace._around and not trace._inside:
                return trace._call(layer, args, kwargs)
            return trace._real(layer, *args, **kwargs)

        with replace_function(keras.layers.Layer, "__call__", call), symbolic_operations(self._batch):
            yield

    def call_model(self, model: Any, inputs: list[Any]) -> Any:
        """Call the whole model on the new inputs, matched by name; return its symbolic outputs. Raises ModelError."""
        import keras

        by_name = {str(tensor.name): tensor for tensor in inputs}
        return self._walk(model, (keras.tree.map_structure(lambda one: by_name[str(one.name)], model.input),), {})

    def source_variables(self, layer: Any) -> list[Any]:
        """Return the variables of the given model that a traced layer's weights come from, in the weights' order."""
        return self._sources.get(layer.name, [])

    def _call(self, layer: Any, args: Any, kwargs: Any) -> Any:
        import keras

        if type(layer).__name__.endswith("DropPath"):
            return self._drop_path(layer, args[0])
        if _is_hub(layer) or isinstance(layer, keras.Model):
            return self._walk(layer, args, kwargs)
        if isinstance(layer, keras.layers.Identity):
            return args[0]
        activation = _foreign_activation(layer)
        if not any(isinstance(part, keras.KerasTensor) for part in keras.tree.flatten((args, kwargs))):
            args = tuple(map(self._batch.symbolic, args))  # else the results become constants
        outputs = self._run(self._copy_layer(layer), *args, **kwargs)
        if isinstance(layer, keras.layers.EinsumDense):
            outputs = _with_sizes(outputs, layer.equation, args[0].shape)
        return outputs if activation is None else activation(outputs)

    def _run(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        """Record a call of a layer of Keras' own.

        Calls inside of that layer are not traced.
        """
        self._inside = True
        try:
            return self._real(layer, *args, **kwargs)
        finally:
            self._inside = False

    def _copy_layer(self, layer: Any) -> Any:
        """Return an unbuilt copy of a layer, always the same one; a built one would keep an unknown length unknown."""
        import keras

        if (why := LEFT_OUT.get(type(layer).__name__)) is not None:
            raise ModelError(f"the model's layer {layer.name!r} is a {type(layer).__name__}: {why}")
        if id(layer) not in self._copies:
            # Leave out the whole model's name, which would precede every layer's, and names that the layer's own
            # repeats.
            around = [part for part in self._around[1:] if not layer.name.startswith(part)]
            copy = type(layer).from_config(
                {**layer.get_config(), "name": self._unique("_".join((*around, layer.name)))}
            )
            # A client cannot load the function by name. So the copy has no activation, and _call applies the function's
            # operations.
            if _foreign_activation(copy) is not None:
                copy.activation = keras.activations.linear
            self._copies[id(layer)] = layer, copy
            self._sources[copy.name] = layer.weights
        return self._copies[id(layer)][1]

    def _drop_path(self, layer: Any, x: Any) -> Any:
        """Apply Keras' Dropout instead of a layer that drops whole samples, since KerasHub's branches on `training`."""
        import keras

        rate = getattr(layer, "rate", getattr(layer, "drop_prob", 0.0))
        noise_shape = (None, *(1,) * (len(x.shape) - 1))
        return self._run(keras.layers.Dropout(rate, noise_shape, name=self._unique(layer.name)), x) if rate else x

    def _walk(self, layer: Any, args: Any, kwargs: Any) -> Any:
        """Run a layer's `call` on symbolic tensors, which also replace the layer's own weights while it runs.

        Raises:
            ModelError: The layer cannot be converted.
        """
        _refuse_training(layer)
        kwargs.pop("training", None)  # each layer inside gets it from Keras when the model runs
        kept = {name: value for name, value in vars(layer).items() if _is_variable(value)}
        own = [*layer._trainable_variables, *layer._non_trainable_variables]
        # Weights are replaced by the names of their attributes. One in a list would stay a constant and never be
        # trained.
        if len({id(one) for one in own} - {id(one) for one in kept.values()}):
            raise ModelError(f"{_kind(layer)} keeps weights in a list, where they cannot be replaced: {_CURE}")
        self._around.append(layer.name)
        layer.__dict__.update({name: self._holding(layer, value) for name, value in kept.items()})
        try:
            return layer.call(*args, **_with_mask(layer, args, kwargs))
        except ModelError:
            raise
        except Exception as error:  # of the layer, of every kind
            raise _inline_error(layer, error) from error
        finally:
            layer.__dict__.update(kept)
            self._around.pop()

    def _holding(self, layer: Any, variable: Any) -> Any:
        """Return a weight of a KerasHub layer as the output of an Embedding with one row."""
        import keras

        if id(variable) not in self._held:
            size = int(np.prod(variable.shape, dtype=np.int64))
            holder = keras.layers.Embedding(1, size, name=self._unique(f"{layer.name}_{variable.name}"))
            holder.trainable = variable.trainable
            row = self._run(holder, self._batch.first_row())
            self._sources[holder.name] = [variable]
            self._held[id(variable)] = variable, keras.ops.reshape(row, tuple(variable.shape))
        return self._held[id(variable)][1]

    def _unique(self, name: str) -> str:
        number, unique = 1, name
        while unique in self._taken:
            unique, number = f"{name}_{number}", number + 1
        self._taken.add(unique)
        return unique


def _with_sizes(outputs: Any, equation: str, shape: Any) -> Any:
    """Return an EinsumDense's output with the sizes that Keras does not infer and KerasHub's layers need.

    Args:
        outputs: The layer's symbolic output.
        equation: The layer's equation, such as `abc,cd->abd`.
        shape: Shape of the layer's input.
    """
    from keras import ops

    given, _, output = equation.replace("->", ",").split(",")
    if "..." in equation or None not in outputs.shape[1:]:
        return outputs
    by_letter = dict(zip(given, shape, strict=True))
    sizes = zip(output, outputs.shape, strict=True)
    return ops.reshape(outputs, tuple(by_letter.get(letter) if size is None else size for letter, size in sizes))


def _refuse_training(layer: Any) -> None:
    """Refuse a layer that behaves differently in training, which a graph cannot express. Raises ModelError."""
    import keras

    if isinstance(layer, keras.Model):  # a graph of layers, which are checked one by one
        return
    kinds = (kind for kind in type(layer).__mro__ if kind.__module__.startswith(PACKAGE))
    source = "".join(map(inspect.getsource, kinds))
    if _ASKS_TRAINING.search(source) or "self.add_loss(" in source:
        raise ModelError(f"{_kind(layer)} computes something else in training than in prediction: {_CURE}")


def _with_mask(layer: Any, args: Any, kwargs: Any) -> Any:
    """Return a layer's keyword arguments, with the mask of its first input added as Keras' `__call__` would add it."""
    mask = getattr(args[0], "_keras_mask", None) if args else None
    if mask is None or "mask" in kwargs or "mask" not in inspect.signature(layer.call).parameters:
        return kwargs
    return {**kwargs, "mask": mask}


def _is_variable(value: Any) -> bool:
    import keras

    return isinstance(value, keras.Variable)


def _foreign_activation(layer: Any) -> Callable[[Any], Any] | None:
    """Return a layer's activation function if it does not come from Keras, otherwise None."""
    activation = getattr(layer, "activation", None)
    is_foreign = callable(activation) and not str(getattr(activation, "__module__", "keras")).startswith("keras.")
    return activation if is_foreign else None


def _compare(model: Any, made: Any, inputs: list[Any]) -> None:
    """Check that both models predict the same. Raises ModelError."""
    import keras

    drawn = np.random.default_rng(0)
    samples = {}
    for tensor in inputs:
        shape = (_SAMPLES, *tensor.shape[1:])
        name = str(tensor.name)
        if np.dtype(tensor.dtype).kind == "f":
            samples[name] = drawn.random(shape, dtype=np.float32)
        # A padding mask is true from the beginning up to a length of at least 1. Other masks do not occur in training,
        # and with zeros alone attention would have nothing to attend to.
        elif name == "padding_mask":
            samples[name] = np.sort(drawn.integers(0, 2, shape))[..., ::-1].astype(tensor.dtype)
            samples[name][..., 0] = 1
        else:
            # The numbers 0 and 1 exist in every vocabulary and in every table of segments.
            samples[name] = drawn.integers(0, 2, shape).astype(tensor.dtype)
    given = keras.tree.map_structure(lambda tensor: samples[str(tensor.name)], model.input)
    theirs = keras.tree.flatten(model(given, training=False))
    try:
        ours = keras.tree.flatten(made(as_given(list(samples.values())), training=False))
    except Exception as error:  # of the backend
        raise ModelError(f"{_kind(model)} made of Keras' own layers does not run ({_short(error)}): {_CURE}") from error
    for one, other in zip(theirs, ours, strict=True):
        a, b = (np.asarray(keras.ops.convert_to_numpy(x), np.float64) for x in (one, other))
        if a.shape != b.shape or not np.allclose(a, b, rtol=0, atol=_TOLERANCE * max(1.0, float(np.abs(a).max()))):
            raise ModelError(f"{_kind(model)} made of Keras' own layers does not predict the same: {_CURE}")
