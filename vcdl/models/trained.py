"""Select the part of a model that a job trains: the layers that its patterns name."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from vcdl.errors import ModelError, nearest

_HINT = 300
"""Characters of names in a message, because a deep model has hundreds of layers."""


def train_only(model: Any, patterns: Sequence[str]) -> None:
    """Train the layers that a pattern names, and freeze all others. Raises ModelError for one that names none."""
    named = named_layers("model > train", model, patterns)
    model.trainable = True  # also the models within it, whose flag holds for what is in them
    for layer in layers_with_weights(model):
        layer.trainable = id(layer) in named


def named_layers(key: str, model: Any, patterns: Sequence[str], *, inside: bool = False) -> Mapping[int, Any]:
    """Return the layers that patterns name, by id, with their path and the model around them.

    With `inside`, layers within layers are named too, such as attention's projections. Raises ModelError for a pattern
    that names none.
    """
    named: dict[int, Any] = {}
    layers = [(layer, names) for layer, names in (_parts(model) if inside else _layers(model, ())) if layer.weights]
    for pattern in patterns:
        found = {id(layer): layer for layer, names in layers if any(fnmatchcase(name, pattern) for name in names)}
        if not found:
            known = sorted({name for _, names in layers for name in names})
            hint = nearest(pattern, known)
            if len(hint) > _HINT:
                unset = ".".join(key.split(" > ")[:2])  # else describe refuses the job by this very pattern
                whole = hint[:_HINT].rpartition(", ")[0] or hint[:_HINT]
                hint = f"{whole}, …; `vcdl describe JOB.yaml --set {unset}=null` lists all"
            raise ModelError(f"{key}: no layer with weights is named {pattern!r}; {hint}")
        named |= found
    return named


def layers_with_weights(model: Any) -> list[Any]:
    """Return the layers of a model and of the models within it; a wrapper counts as one layer."""
    return [layer for layer, _ in _layers(model, ()) if layer.weights]


def layer_paths(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield each layer with weights after the path by which patterns may name it."""
    for layer, names in _layers(model, ()):
        if layer.weights:
            yield max(names, key=len), layer


def _parts(model: Any) -> Iterator[tuple[Any, set[str]]]:
    """Yield each layer that is no model, and each one inside it, with its names and those of the layer around it."""
    for layer, names in _layers(model, ()):
        yield layer, names
        longest = max(names, key=len)
        for part in layer._flatten_layers(include_self=False):
            yield part, names | {part.name, f"{longest}/{part.name}"}


def _layers(model: Any, above: tuple[str, ...]) -> Iterator[tuple[Any, set[str]]]:
    """Yield each layer that is no model, with its names.

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
