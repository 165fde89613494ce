"""The control: plain `model.fit` with the model, its first weights and frozen layers, data, optimizer, batch size and
number of sample passes of a job file.

`python benchmarks/plain_keras.py JOB.yaml [EPOCHS]` prints one JSON object: accuracies and seconds of each
part.
"""

import json
import sys
import time
from pathlib import Path

from vcdl.client.compile import compile_model
from vcdl.client.model import load_model
from vcdl.data import load_dataset
from vcdl.data.rows import in_memory
from vcdl.job import load_job
from vcdl.models.fitted import build_fitted
from vcdl.wire.layout import assign, assign_frozen
from vcdl.wire.normalise import normalise


def main() -> None:
    begin_s = time.perf_counter()
    job = load_job(Path(sys.argv[1]))
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else job.stop.epochs
    import keras

    imported_s = time.perf_counter() - begin_s
    keras.utils.set_random_seed(job.seed)
    dataset = load_dataset(job.data, job.seed)
    fit = build_fitted(job, dataset)
    norm = fit.normalisation
    model = load_model(fit.model.json)
    assign(model, fit.model.weights)
    assign_frozen(model, fit.model.frozen)
    compile_model(model, fit.training)
    samples = len(dataset.x_val) if job.validate_.samples == "all" else job.validate_.samples
    validation = normalise(in_memory(dataset.x_val), norm), dataset.y_val
    fit_begin_s = time.perf_counter()
    history = model.fit(
        normalise(in_memory(dataset.x_train), norm),
        dataset.y_train,
        batch_size=job.training.batch_size,
        epochs=epochs,
        validation_data=(validation[0][:samples], validation[1][:samples]),
        verbose=0,
    )
    fit_s = time.perf_counter() - fit_begin_s
    result = {"epochs": epochs, "imported_s": imported_s, "fit_s": fit_s, "epoch_s": fit_s / epochs}
    result["validation"] = model.evaluate(*validation, batch_size=256, verbose=0, return_dict=True)["accuracy"]
    if dataset.x_test is not None:
        x_test = normalise(in_memory(dataset.x_test), norm)
        result["test"] = model.evaluate(x_test, dataset.y_test, batch_size=256, verbose=0, return_dict=True)["accuracy"]
    result["curve"] = history.history["val_accuracy"]
    result["wall_s"] = time.perf_counter() - begin_s
    print(json.dumps(result))


if __name__ == "__main__":
    main()
