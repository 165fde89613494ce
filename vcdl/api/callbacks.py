"""Translate callbacks of `fit` into settings of a run; refuse the others, with an alternative.

A callback is code of the program that calls `vcdl.train`. A run continues in other processes and on other machines
after that program has ended, so no callback is ever called.
"""

from typing import Any

from vcdl.errors import JobError

_RATE = "training={'learning_rate': {'peak': 0.002, 'schedule': 'cosine', 'warmup': 0.05}} gives the rate a schedule"
_BEST = "run.model(best=True) has the weights of the best epoch"
_CURES = {
    "ModelCheckpoint": f"a run keeps its weights itself, and {_BEST}: run.model(best=True).save('best.keras')",
    "BackupAndRestore": "a run that was killed continues with vcdl.open(FOLDER).resume()",
    "CSVLogger": "run.history.history has the same columns: pandas.DataFrame(run.history.history).to_csv('log.csv')",
    "TensorBoard": "a run writes tensorboard/ into its folder itself: tensorboard --logdir RUN/tensorboard",
    "LearningRateScheduler": _RATE,
    "ReduceLROnPlateau": _RATE,
    "SwapEMAWeights": "the server's weights are a mean over many updates already",
}
"""Class of a Keras callback → what replaces it in a run."""
_OTHERS = "no callback runs on other machines: iterate over run.events(), or read run.history"


def stop_settings(callbacks: Any) -> dict[str, Any]:
    """Convert Keras callbacks to keys of the job's section `stop`; empty if no callback sets any.

    Args:
        callbacks: One callback, a list of them, or None.

    Raises:
        JobError: A callback cannot be expressed by such keys.
    """
    given = callbacks if isinstance(callbacks, list | tuple) else [] if callbacks is None else [callbacks]
    stop: dict[str, Any] = {}
    for callback in given:
        name = type(callback).__name__
        # Compare modules instead of using `isinstance`, because a subclass may do anything in addition.
        is_keras = type(callback).__module__.startswith("keras.")
        if is_keras and name == "TerminateOnNaN":
            continue  # a training that diverges ends every run
        if not is_keras or name != "EarlyStopping":
            cure = _CURES.get(name, _OTHERS) if is_keras else _OTHERS
            raise JobError(f"vcdl.train: callbacks: {name} is not supported: {cure}")
        if stop:
            raise JobError("vcdl.train: callbacks: EarlyStopping is given twice, and a run has one monitor: give one")
        stop = _early_stopping(callback)
    return stop


def _early_stopping(callback: Any) -> dict[str, Any]:
    for key, usual, cure in (
        ("min_delta", 0, "any improvement counts"),
        ("baseline", None, "stop={'target': …} ends a run that is good enough"),
        ("start_from_epoch", 0, "give a larger patience"),
        ("restore_best_weights", False, _BEST),
    ):
        if getattr(callback, key) != usual:
            raise JobError(f"vcdl.train: callbacks: EarlyStopping has no {key} here: leave it out, {cure}")
    if not callback.monitor.startswith("val_"):
        raise JobError(
            f"vcdl.train: callbacks: EarlyStopping: monitor: {callback.monitor!r} is measured in training, and a run "
            f"is judged on held-out samples: give 'val_{callback.monitor}'"
        )
    mode = {} if callback.mode == "auto" else {"mode": callback.mode}
    return {"monitor": callback.monitor, "patience": max(1, callback.patience), **mode}  # Keras stops at 0 as at 1
