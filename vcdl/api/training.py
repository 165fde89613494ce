"""`vcdl.train`: start a run from a Keras model and arrays, with the arguments of Keras' `fit`."""

import inspect
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from vcdl.api.callbacks import stop_settings
from vcdl.api.compiled import training_of
from vcdl.api.elsewhere import RemoteRun, connect
from vcdl.api.given import (
    DATA_FILE,
    DATA_FOLDER,
    JOB_FILE,
    MODEL_FILE,
    as_array,
    as_arrays,
    check_can_travel,
    check_is_a_model,
    ends_of,
    write_arrays,
    write_folder,
    write_model,
)
from vcdl.api.handle import RunHandle
from vcdl.api.hub_task import mask_of, of_keras_layers, preprocess
from vcdl.api.job import JobFile
from vcdl.api.lookups import apply_lookups, split_off
from vcdl.api.outputs import outputs_of
from vcdl.api.settings import plain
from vcdl.api.spooled import is_stream, spool_stream
from vcdl.api.task import as_classes, refuse_one_hot, task_of
from vcdl.client.compile import measures_itself
from vcdl.client.own_code import OwnCode
from vcdl.errors import DataError, JobError, folder_errors, nearest
from vcdl.job import Job, as_yaml, job_of
from vcdl.job.code_folder import read_code
from vcdl.models.hub_inline import holds_hub_layers
from vcdl.run.finding import folder_for
from vcdl.run.folder import RunFolder

_ARGUMENTS = {
    "epochs": ("stop", "epochs"),
    "batch_size": ("training", "batch_size"),
    "shards": ("data", "shards"),
    "validation_split": ("data", "validation"),
    "class_weight": ("training", "class_weight"),
    "workers": ("grid", "workers"),
    **{key: ("stop", key) for key in ("monitor", "mode", "patience")},
}
"""Each argument of `train`, or key that callbacks set, with its section and key in a job file."""
_OF_FIT = {
    "verbose": "run.wait(show=False) shows nothing",
    "initial_epoch": "vcdl.open(FOLDER).resume() continues a run",
    "steps_per_epoch": "an epoch is every shard once: give the samples to train, of a stream data.take(n)",
    "shuffle": "samples are shuffled before they are cut into shards",
    "validation_steps": "give validate={'samples': 2000}",
    "validation_batch_size": "give validate={'samples': 2000}",
    "validation_freq": "give validate={'every': 'epoch'}",
}
"""Argument of `fit` that a run does not have → its replacement."""


@overload
def train(model: Any, x: Any = None, y: Any = None, *, server: None = None, **arguments: Any) -> RunHandle: ...
@overload
def train(model: Any, x: Any = None, y: Any = None, *, server: str, **arguments: Any) -> RemoteRun: ...
def train(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    validation_data: Any = None,
    test_data: Any = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    shards: int | None = None,
    validation_split: float | None = None,
    callbacks: Any = None,
    sample_weight: Any = None,
    class_weight: Mapping[Any, float] | str | None = None,
    workers: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    out: str | Path | None = None,
    simulate: Mapping[str, Any] | bool | None = None,
    code: str | Path | None = None,
    show: bool = True,
    server: str | None = None,
    **sections: Any,
) -> RunHandle | RemoteRun:
    """Start to train a Keras model on arrays, in shards, in a separate process; `Run.wait` waits for the end.

    Optimizer, learning rate, loss and metrics are those that the model was compiled with. Samples are used as they are,
    unless `data={"normalise": …}` changes that.

    Args:
        model: The model.
        x: Samples. Without `y`, it may be a stream of pairs (x, y): a `tf.data.Dataset`, a `PyDataset`, a data set of
            PyTorch, or a generator. A stream is written to the disk first, as are arrays that are mapped.
        y: Labels.
        validation_data: A pair (x, y) or a stream; None: validation samples are taken from `x` and `y`.
        test_data: A pair (x, y) or a stream, to test the trained model on.
        epochs: Number of epochs.
        batch_size: Samples of a batch; None: by the number of samples.
        shards: Number of shards; None: by the number of samples.
        validation_split: Number or fraction of the samples that validate.
        callbacks: Keras' callbacks that a run has as settings, such as `EarlyStopping`; others are refused.
        sample_weight: Weight of each sample in training.
        class_weight: Weight of a sample by its class, or `balanced`.
        workers: Worker processes on this machine.
        seed: The job's seed.
        name: The job's name; None: the name of `out`, or of the model.
        out: The run's folder; None: runs/NAME.
        simulate: Keys of a clients file, such as `{"clients": 10}`: simulated clients train instead of this machine's
            workers.
        code: The folder whose Python files are sent with the model, for classes and functions of one's own.
        show: Print what the run does until the job is prepared.
        server: A service of `vcdl login`, where the job is trained instead.
        sections: Sections of a job file, such as `update={"rule": "vc_asgd"}`. They have priority over what follows
            from the model and the data.

    Returns:
        The run, as soon as its job is accepted and prepared.

    Raises:
        JobError, DataError, ModelError, RunFolderError: The arguments cannot be used. Nothing is left behind then.
    """
    for argument in sections:
        _refuse_unknown(argument)
    # Accept both if the split is 0, which is its default in `fit`.
    if validation_split == 0 and validation_data is not None:
        validation_split = None
    check_is_a_model(model)
    own = None if code is None else read_code(Path(code).resolve())
    arguments = {
        "epochs": epochs,
        "batch_size": batch_size,
        "shards": shards,
        "validation_split": validation_split,
        "class_weight": class_weight,
        "workers": workers,
        **stop_settings(callbacks),
    }
    with tempfile.TemporaryDirectory(prefix="vcdl_") as spool:  # streams wait here for the run's folder
        is_hub = holds_hub_layers(model)
        if is_hub:
            x, y, sample_weight = preprocess(model, "x", x, y, sample_weight)
            validation_data = _pair_preprocessed(model, "validation_data", validation_data)
            test_data = _pair_preprocessed(model, "test_data", test_data)
            sections["data"] = {**mask_of(model), **plain(sections.get("data", {}), "data")}
        model, lookups = split_off(model)
        if lookups:
            if show:
                named = ", ".join(layer.name for layer in lookups.values())
                print(f"{named} is applied to the data now, once: the run's model gets the numbers")
            names = ends_of(model)[0]
            x = apply_lookups(lookups, "x", x, names)
            validation_data, test_data = (
                (apply_lookups(lookups, what, pair[0], names), pair[1]) if isinstance(pair, tuple | list) else pair
                for what, pair in (("validation_data", validation_data), ("test_data", test_data))
            )
        arrays = _arrays(model, x, y, validation_data, test_data, Path(spool))
        if is_hub:
            model = of_keras_layers(model, arrays)
        if sample_weight is not None:
            if "weight_train" in arrays:
                raise DataError("x gives weights, and so does sample_weight: give one of them")
            arrays["weight_train"] = as_array("sample_weight", sample_weight)
        check_can_travel(model, {name: array for name, array in arrays.items() if name.startswith("x_train")}, own)
        values = _values(model, arrays, arguments, sections, own)
        if code is not None:
            values["model"]["code"] = str(Path(code).resolve())
        values = {"name": name or _name_of(model, out), **({} if seed is None else {"seed": seed}), **values}
        # Check the job before anything is written or sent.
        job_of(values, "vcdl.train")
        if server is not None:
            if (out, simulate, code) != (None, None, None):
                raise JobError("vcdl.train: server: `server` excludes `out`, `simulate` and `code`: remove them")
            values["data"] |= {"npz": DATA_FILE} if values["data"].pop("from", None) is not None else {}
            return _submit(server, model, arrays, values, Path(spool))
        return _begin(model, arrays, values, out, _clients(simulate), show)


def _clients(simulate: Any) -> Mapping[str, Any] | None:
    """Return the keys of a clients file, or None to train without simulation. Raises JobError."""
    if simulate is None or isinstance(simulate, bool):
        return {} if simulate else None
    if not isinstance(simulate, Mapping):
        raise JobError("vcdl.train: simulate: expected keys of a clients file, such as {'clients': 10}, or True")
    return simulate


def _refuse_unknown(argument: str) -> None:
    if argument in _OF_FIT:
        raise JobError(f"vcdl.train has no {argument}: {_OF_FIT[argument]}")
    known = {field.alias or key for key, field in Job.model_fields.items()} - {"name", "seed", "model"}
    if argument not in known:
        arguments = set(inspect.signature(train).parameters) - {"model", "sections"}
        raise JobError(f"vcdl.train: {argument} is no section of a job file; {nearest(argument, known | arguments)}")


def _arrays(model: Any, x: Any, y: Any, validation: Any, test: Any, spool: Path) -> dict[str, Any]:
    from vcdl.wire.inputs import array_name

    inputs, outputs = ends_of(model)
    # A model that takes x as its own labels has no y either, but its x is an array and no stream.
    pairs = {"train": x if y is None and is_stream(x) else (x, y), "val": validation, "test": test}
    arrays = {}
    for part, pair in pairs.items():
        if pair is None:
            continue
        if is_stream(pair):
            name = {"train": "x", "val": "validation_data", "test": "test_data"}[part]
            axes = len(model.inputs[0].shape) - 1 if inputs else None
            arrays.update(spool_stream(name, pair, spool, part, axes, (inputs, outputs)))
            continue
        what = {"train": "", "val": "validation_data: ", "test": "test_data: "}[part]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(f"{what}expected a pair (x, y)")
        found = _of_pair(model, what, pair)
        arrays.update({array_name(f"{letter}_{part}", of): array for (letter, of), array in found.items()})
    return arrays


def _pair_preprocessed(model: Any, what: str, pair: Any) -> Any:
    """Preprocess a pair (x, y) as the model does; return anything else unchanged, since `_arrays` checks it."""
    if isinstance(pair, tuple | list) and len(pair) == 2:
        return preprocess(model, what, *pair)[:2]
    return pair


def _of_pair(model: Any, what: str, pair: Sequence[Any]) -> dict[tuple[str, str], Any]:
    """Return the arrays of x and y, keyed by (`x` or `y`, name of the input or output). Raises DataError.

    The y of an autoencoder, the same object as x, is left out.
    """
    inputs, outputs = ends_of(model)
    found: dict[tuple[str, str], Any] = {}
    for letter, value, ends, side in (("x", pair[0], inputs, "inputs"), ("y", pair[1], outputs, "outputs")):
        if value is None and letter == "y" and measures_itself(model):
            continue  # its steps take x, which stands for y as well
        if value is None:
            cure = "without labels give x twice, or a model with a train_step and a test_step of its own"
            missing = f"{what}{letter} is missing: give arrays x and y"
            raise DataError(f"{missing}; {cure}" if letter == "y" else missing)
        if letter == "x" or value is not pair[0]:  # else an autoencoder's, which is stored once
            found |= {(letter, of): array for of, array in as_arrays(f"{what}{letter}", value, ends, side).items()}
    return found


def _values(
    model: Any, arrays: dict[str, Any], arguments: Mapping[str, Any], sections: Mapping[str, Any], code: OwnCode | None
) -> dict[str, Any]:
    """Return the sections of the job file.

    One-hot labels in `arrays` may be replaced in place by class numbers.

    Args:
        model: The model to train.
        arrays: The job's arrays by name.
        arguments: Arguments of `train` by name; None where none was given.
        sections: Sections that the caller gives, which have priority.
        code: The job's own code, or None.

    Raises:
        JobError: The settings contradict each other, or the model's cannot be expressed.
        DataError: The labels do not fit the loss.
    """
    # Mapped samples go into a folder of files, because an archive would be read into memory as a whole.
    source = {"from": {"path": DATA_FOLDER, "as": "arrays"}} if _stays_on_disk(arrays) else {"npz": DATA_FILE}
    data: dict[str, Any] = {**source, "normalise": "none"}
    values: dict[str, Any] = {"model": {"keras": MODEL_FILE}, "data": data, "training": training_of(model, code)}
    for key, section in sections.items():
        section = plain(section, key)
        values[key] = {**values[key], **section} if key in values and isinstance(section, dict) else section
    if not isinstance(values["data"], dict) or not isinstance(values["training"], dict):
        raise JobError("vcdl.train: data and training are sections: give a dict of their keys")
    _add_arguments(values, arguments)
    if len(ends_of(model)[1]) > 1:
        values["data"].setdefault("outputs", outputs_of(model, arrays, code))
        return values
    as_classes(values["training"], arrays)
    shape = tuple(model.outputs[0].shape)  # a subclassed model has no output_shape
    refuse_one_hot(shape, values["training"].get("loss"), arrays.get("y_train"))
    if "task" not in values["data"]:
        task = task_of(shape, values["training"].get("loss"), arrays.get("y_train"))
        values["data"].update({} if task == "classification" else {"task": task})
    if not values["training"]:
        del values["training"]
    return values


def _add_arguments(values: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    for argument, value in arguments.items():
        if value is None:
            continue
        section, key = _ARGUMENTS[argument]
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict) or key in inner:
            raise JobError(f"vcdl.train: {argument} and {section}={{{key!r}: …}} say the same: give one of them")
        inner[key] = plain(value, argument)


def _stays_on_disk(arrays: Mapping[str, Any]) -> bool:
    """Return whether the samples are mapped from the disk and the run can read them in pieces."""
    import numpy as np

    plain = {f"{letter}_{part}" for letter in "xy" for part in ("train", "val", "test")}
    return isinstance(arrays.get("x_train"), np.memmap) and set(arrays) <= plain


def _name_of(model: Any, out: str | Path | None) -> str:
    """Return a valid job name, derived from the name of the run's folder or of the model."""
    name = Path(out).name if out is not None else str(model.name)
    return re.sub(r"[^a-z0-9_-]", "_", name.lower()).lstrip("_-")[:63] or "run"


def _begin(
    model: Any,
    arrays: dict[str, Any],
    values: dict[str, Any],
    out: str | Path | None,
    simulate: Mapping[str, Any] | None,
    show: bool,
) -> RunHandle:
    folder = folder_for(values["name"], None if out is None else Path(out))
    is_new = not folder.path.exists()
    try:
        _write_given(folder.given, model, arrays, values)
        job = JobFile.load(folder.given / JOB_FILE)
        if simulate is None:
            return job.run(folder.path, show=show)
        return job.simulate(**simulate, out=folder.path, show=show)
    except BaseException:
        # Keep a run that was prepared: it belongs to the user, even if this call fails afterwards.
        if not folder.prepared_file.exists() and folder.running_pid is None:
            _discard(folder, is_new)
        raise


def _submit(server: str, model: Any, arrays: dict[str, Any], values: dict[str, Any], folder: Path) -> RemoteRun:
    """Send the model and its arrays to a service, which accepts or refuses the job. Raises VcdlError."""
    _write_given(folder / "given", model, arrays, values, in_one=True)
    return connect(server).submit(folder / "given" / JOB_FILE)


def _write_given(
    folder: Path, model: Any, arrays: dict[str, Any], values: dict[str, Any], *, in_one: bool = False
) -> None:
    """Write job file, model and arrays into a folder, which is created.

    Args:
        folder: The folder.
        model: The model.
        arrays: The arrays by name.
        values: The sections of the job file.
        in_one: Write all arrays into one file, also those that are mapped.
    """
    with folder_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        more = {key: value for key, value in values["model"].items() if key != "keras"}
        values = {**values, "model": {**write_model(folder, model), **more}}
        text = as_yaml(values)
        (folder / JOB_FILE).write_text(f"# Made by vcdl.train: `vcdl run` accepts it as well.\n{text}", "utf-8")
    (write_folder if _stays_on_disk(arrays) and not in_one else write_arrays)(folder, arrays)


def _discard(folder: RunFolder, is_new: bool) -> None:
    shutil.rmtree(folder.path if is_new else folder.given, ignore_errors=True)
