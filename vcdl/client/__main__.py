"""`python -m vcdl.client [FOLDER]`: train a folder's workunit by hand. Ctrl-C leaves a checkpoint to continue from."""

import argparse
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType

from vcdl.client.resources import error_text
from vcdl.client.supervisor import Request
from vcdl.client.train import CHECKPOINT_EVERY_S, Outcome, TrainingTerms, train_workunit
from vcdl.client.trainer import TrainerCache
from vcdl.errors import ExitCode, VcdlError
from vcdl.wire.workunit import OUTPUT_FILE


class Terminal:
    """A supervisor for a person at a terminal: progress in plain lines, Ctrl-C to stop."""

    def __init__(self) -> None:
        self._interrupted = False

    def interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        """Stop after the running batch; a second signal stops immediately."""
        self._interrupted = True
        # Restore the default action: Keras may be in a long compilation, where no Python handler would run.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print("stopping after this batch; repeat to stop immediately", flush=True)

    def request(self) -> Request:
        return Request.QUIT if self._interrupted else Request.GO

    def progress(self, fraction: float, samples: int) -> None:
        print(f"{fraction:6.1%}  {samples} samples", flush=True)

    def checkpoint_made(self) -> None:
        print("checkpoint", flush=True)


def main(arguments: list[str] | None = None) -> ExitCode:
    """Train a folder's workunit by hand, and return the exit code."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    terminal = Terminal()
    signal.signal(signal.SIGINT, terminal.interrupt)
    signal.signal(signal.SIGTERM, terminal.interrupt)
    try:
        outcome = train_workunit(options.folder, terminal, TrainerCache(), TrainingTerms(options.checkpoint_every_s))
    except VcdlError as error:
        print(f"failed: {error_text(error)}", file=sys.stderr)
        return error.exit_code
    except Exception as error:  # from Keras, its backend or the system
        traceback.print_exc()
        print(f"failed: {error_text(error)}", file=sys.stderr)
        return ExitCode.RUN_FAILED if isinstance(error, OSError | MemoryError) else ExitCode.BUG
    if outcome is Outcome.QUIT:
        print("stopped; the same command resumes from here")
        return ExitCode.INTERRUPTED
    print(f"100.0%  {OUTPUT_FILE} is written")
    return ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vcdl.client",
        description="Train the workunit in a folder. Ctrl-C leaves a checkpoint; the same command resumes from it.",
        epilog="Exit codes: 0 done, 1 the workunit cannot be trained, 2 wrong arguments, 3 bad settings, 5 bad model, "
        "70 unexpected error, 130 interrupted.",
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(), help="folder with the workunit's files (default: here)"
    )
    parser.add_argument(
        "--checkpoint-every-s",
        type=float,
        default=CHECKPOINT_EVERY_S,
        metavar="S",
        help="seconds of training that a kill may lose (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
