"""From a run to a file that plain Keras loads: the model, some version of its weights, and the normalisation in front.

Clients train on normalised samples. The exported model normalises by itself, in a Rescaling layer, and so takes samples as they
are in the user's data set.
"""

import os
from pathlib import Path
from typing import Any

from vcdl.errors import RunFolderError
from vcdl.prepared import Prepared
from vcdl.run_folder import RunFolder, folder_error
from vcdl.workunit import Normalisation


def export_model(folder: RunFolder, output: Path, version: int | None) -> None:
    """Write `output` (its name ends in .keras) whole or not at all: compiled, with the weights of a version.

    `version` None: the newest weights; any other must still have its snapshot. Raises RunFolderError, StoreError, ModelError,
    WeightsFileError.
    """
    from vcdl.client.compile import compile_model
    from vcdl.client.model import load_model
    from vcdl.job import load_frozen_job
    from vcdl.weights import assign

    job = load_frozen_job(folder.job_file)
    prepared = Prepared.read(folder)
    vector = _newest(folder, prepared.layout.size) if version is None else _of_version(folder, prepared, version)
    model = load_model(folder.model_file.read_text(encoding="utf-8"))
    assign(model, vector)
    model = _normalising(model, prepared.normalisation, job.name)
    compile_model(model, prepared.training(job))
    _save(model, output)


def _newest(folder: RunFolder, size: int) -> Any:
    from vcdl.stores.file import FileStore

    store = FileStore(folder.store, size)
    try:
        return store.read()[1]
    finally:
        store.close()


def _of_version(folder: RunFolder, prepared: Prepared, version: int) -> Any:
    from vcdl.weights import read_weights

    snapshot = folder.snapshot(version)
    if not snapshot.is_file():
        raise RunFolderError(
            f"version {version} of the weights is no longer kept in {folder.snapshots}: export another"
        )
    return read_weights(snapshot, prepared.layout.size)[0]


def _normalising(model: Any, normalisation: Normalisation, name: str) -> Any:
    """The model behind a Rescaling layer; as it is when there is nothing to rescale."""
    if normalisation == Normalisation():
        return model
    import keras

    inputs = keras.Input(model.inputs[0].shape[1:], name="samples")
    rescale = keras.layers.Rescaling(_number_or_list(normalisation.scale), _number_or_list(normalisation.offset))
    return keras.Model(inputs, model(rescale(inputs)), name=name)


def _number_or_list(numbers: tuple[float, ...]) -> float | list[float]:
    return numbers[0] if len(numbers) == 1 else list(numbers)


def _save(model: Any, output: Path) -> None:
    temporary = output.with_name(f".{output.stem}.{os.getpid()}.keras")
    try:
        model.save(temporary)
        temporary.replace(output)
    except OSError as error:
        raise folder_error(output.parent, error) from error
    finally:
        temporary.unlink(missing_ok=True)
