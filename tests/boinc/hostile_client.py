"""A hostile volunteer under BOINC's real client: our own client, in whose process the upload is replaced at its end.

The volunteer's computer is his: `VCDL_PYTHON` names a Python that runs this file instead of the client, which it then
loads itself. So everything up to the upload is honest: what was sent, trained, written and told.

    python hostile_client.py ATTACK STATE CLIENT [OPTION …]

`garbage`: each upload is random bytes; `garbage_first`: the first one is; `flipped`: once STATE/strike exists, each
upload is its step backwards.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

STRIKE = "strike"
_GARBAGE_BYTES = 2000


def hostile_python(folder: Path, attack: str) -> Path:
    """A program for VCDL_PYTHON; `folder` keeps its state."""
    folder.mkdir()
    program = folder / "python"
    # -B - : the launcher asks whether this Python can train; -B CLIENT OPTION … : it starts the client.
    program.write_text(
        f'#!/bin/sh\n[ "$2" = - ] && exec {sys.executable} "$@"\nshift\n'
        f'exec {sys.executable} -B {Path(__file__).resolve()} {attack} {folder} "$@"\n'
    )
    program.chmod(0o755)
    return program


def main() -> None:
    attack, state, client, *options = sys.argv[1:]
    sys.argv = [client, *options]
    sys.path[0] = client
    from vcdl.client import boinc, task, train, trainer

    if attack == "flipped":
        patch.object(trainer, "Trainer", _flipping(trainer.Trainer, Path(state) / STRIKE)).start()
    else:
        ruined = _ruined(train.train_workunit, Path(state) / "done", only_first=attack == "garbage_first")
        patch.object(task, "train_workunit", ruined).start()
    boinc.run()


def _ruined(train: Callable[..., Any], done: Path, *, only_first: bool) -> Callable[..., Any]:
    """Train a workunit, and write random bytes over the upload."""

    def trained(slot: Path, *arguments: Any, **named: Any) -> Any:
        outcome = train(slot, *arguments, **named)
        if not (only_first and done.exists()):
            (slot / "update.h5").write_bytes(os.urandom(_GARBAGE_BYTES))
            done.touch()
        return outcome

    return trained


def _flipping(honest: type, strike: Path) -> type:
    """A trainer whose step is told backwards, once `strike` is there."""

    class Flipping(honest):  # type: ignore[misc]
        def begin(self, weights: Any, *arguments: Any) -> None:
            self._base = weights
            super().begin(weights, *arguments)

        def finish(self) -> Any:
            trained = super().finish()
            size = self.layout.model.size  # the optimizer's moments stay as they are
            if strike.exists():
                trained[:size] = 2 * self._base[:size] - trained[:size]
            return trained

    return Flipping


if __name__ == "__main__":
    main()
