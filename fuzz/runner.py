"""Runs targets on mutated inputs and keeps those that crash: `python -m fuzz --help`."""

import hashlib
import logging
import random
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from fuzz.target import Target

LONGEST_S = 5.0
"""Processor time of one input; the slowest takes some milliseconds."""
MEMORY_BYTES = 1 << 30
"""Address space that a target may take beyond what the process has when it begins."""
_KEPT = 2000
"""Inputs that were taken join the corpus, up to so many: from them the next ones are made."""


class TooSlowError(BaseException):
    """One input took too long; no `except Exception` on its way may hold it up."""


@dataclass
class Result:
    """What became of a target's inputs."""

    target: str
    taken: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Inputs that were refused, by the error's type."""
    crashes: dict[str, Path] = field(default_factory=dict)
    """The place of each crash in the code → an input that leads to it."""
    seconds: float = 0.0
    slowest_s: float = 0.0

    @property
    def inputs(self) -> int:
        return self.taken + sum(self.refused.values())


def run_target(kind: type[Target], *, seconds: float | None, count: int | None, seed: int, crashes: Path) -> Result:
    """Try a target's corpus, then mutations of it, for so many seconds or inputs."""
    dice, result = random.Random(f"{seed} {kind.name}"), Result(kind.name)
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vcdl-fuzz-", dir=_memory_folder()) as folder, ExitStack() as limited:
        target = kind(Path(folder))  # without limits: it may import Keras
        limited.enter_context(_limits())
        corpus = list(target.seeds())
        for data in corpus:
            if not _try(target, data, result, crashes):
                raise ValueError(f"{kind.name}: a seed is refused: {data!r}")
        seeds = len(corpus)
        while not _is_over(result, begun_s, seconds, count):
            data = target.mutate(dice, dice.choice(corpus if dice.random() < 0.5 else corpus[:seeds]), corpus[:seeds])
            if _try(target, data, result, crashes):
                if len(corpus) < seeds + _KEPT:
                    corpus.append(data)
                else:
                    corpus[dice.randrange(seeds, len(corpus))] = data
    result.seconds = time.monotonic() - begun_s
    return result


def _try(target: Target, data: bytes, result: Result, crashes: Path) -> bool:
    """Whether an input was taken."""
    begun_s = time.process_time()
    try:
        with _alarm():
            target.take(data)
        result.taken += 1
        return True
    except target.refuses as error:
        said = str(error)
        if said.strip() and _is_text(said) and len(said) < 20_000:
            result.refused[type(error).__name__] += 1
        else:
            _keep(target, data, result, crashes, error)
    except (Exception, TooSlowError) as error:
        _keep(target, data, result, crashes, error)
    finally:
        result.slowest_s = max(result.slowest_s, time.process_time() - begun_s)
    return False


def _keep(target: Target, data: bytes, result: Result, crashes: Path, error: BaseException) -> None:
    """Keep the first input of each crash, and print it."""
    result.refused["crash"] += 1
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{type(error).__name__} at {Path(frames[-1].filename).name}:{frames[-1].lineno}"
    if place in result.crashes:
        return
    crashes.mkdir(parents=True, exist_ok=True)
    path = crashes / f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    result.crashes[place] = path
    print(f"CRASH of {target.name}: {place}\n  input: {path}\n  {data[:300]!r}", flush=True)
    traceback.print_exception(error, limit=-6)


def _is_over(result: Result, begun_s: float, seconds: float | None, count: int | None) -> bool:
    if count is not None:
        return result.inputs >= count
    return seconds is not None and time.monotonic() - begun_s >= seconds


def _is_text(said: str) -> bool:
    try:
        said.encode()
    except UnicodeEncodeError:
        return False
    return True


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextmanager
def _alarm() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError(f"one input took more than {LONGEST_S:g} s")


@contextmanager
def _limits() -> Iterator[None]:
    """Limit memory and the time of an input for the block, and keep the log still."""
    logging.disable()
    before = signal.signal(signal.SIGVTALRM, _too_slow)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGVTALRM, before)
        logging.disable(logging.NOTSET)
