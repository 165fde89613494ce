"""Select the part of a model that a job trains: the layers that its patterns name."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from vcdl.errors import ModelError, nearest

_HINT = 300
"""Most characters of layer names in a message, because a deep model has hundreds of layers."""


def train_only(model: Any, patterns: Sequence[str]) -> None:
    """Make the layers that the patterns name trainable, and freeze all others.

    Raises:
        ModelError: A pattern names no layer.
    """
    named = find_layers("model > train", model, patterns)
    model.trainable = True  # sets the flags of models inside it, too, which would freeze their layers
    for layer in layers_with_weights(model):
        layer.trainable = id(layer) in named


def find_layers(key: str, model: Any, patterns: Sequence[str], *, inside: bool = False) -> Mapping[int, Any]:
    """Return the layers with weights whose name or path matches a pattern, keyed by `id(layer)`.

    Args:
        key: The key of the job file with the patterns, for the message.
        model: The model.
        patterns: Each matches a layer's name or path, such as `encoder/dense_1`, or the name of a model around it.
        inside: Match layers inside layers as well, such as attention's projections.

    Raises:
        ModelError: A pattern matches no layer.
    """
    named: dict[int, Any] = {}
    layers = [(layer, names) for layer, names in (_parts(model) if inside else _layers(model, ())) if layer.weights]
    for pattern in patterns:
        found = {id(layer): layer for layer, names in layers if any(fnmatchcase(name, pattern) for name in names)}
        if not found:
            known = sorted({name for _, names in layers for name in names})
            hint = nearest(pattern, known)
            if len(hint) > _HINT:
                unset = ".".join(key.split(" > ")[:2])  # else describe would refuse the job for the same pattern
                whole = hint[:_HINT].rpartition(", ")[0] or hint[:_HINT]
                hint = f"{whole}, …; `vcdl describe JOB.yaml --set {unset}=null` lists all"
            raise ModelError(f"{key}: no layer with weights is named {pattern!r}; {hint}")
        named |= found
    return named


def layers_with_weights(model: Any) -> list[Any]:
    """Return the layers with weights of a model and of nested models; a wrapper and its layer count as one."""
    return [layer for layer, _ in _layers(model, ()) if layer.weights]


def layer_paths(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield each layer with weights as (path, layer); patterns may use the path."""
    for layer, names in _layers(model, ()):
        if layer.weights:
            yield max(names, key=len), layer


def _parts(model: Any) -> Iterator[tuple[Any, set[str]]]:
    """Yield each layer that is not a model, and each layer inside it, with all names by which patterns may match it."""
    for layer, names in _layers(model, ()):
        yield layer, names
        longest = max(names, key=len)
        for part in layer._flatten_layers(include_self=False):
            yield part, names | {part.name, f"{longest}/{part.name}"}


def _layers(model: Any, above: tuple[str, ...]) -> Iterator[tuple[Any, set[str]]]:
    """Yield each layer that is not a model, with all names by which patterns may match it.

    Args:
        model: The model.
        above: Names of the models that it is in, outermost first.
    """
    import keras

    for layer in model.layers:
        path = (*above, layer.name)
        if isinstance(layer, keras.Model):
            yield from _layers(layer, path)
        else:
            # The name of a model inside the model names all of its layers.
            paths = {"/".join(path[:length]) for length in range(1, len(path) + 1)}
            yield layer, paths | set(path)
