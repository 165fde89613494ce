"""`python -m benchmarks.bench_store`: the time of an update in each store, from the HDF5 upload to the written store.

All cases run side by side, once a round each, so that a busy machine slows all of them alike; the median over the
rounds counts. A target is a ratio of two cases. It starts a Redis and a MariaDB of its own (redis-server and mariadbd
must be installed); they have default settings, except for the packet size that the naive MariaDB loop needs. The
uploads take eight times the vector's bytes in the temporary folder, beside what each store holds there.
"""

import argparse
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.naive_loops import ALPHA, naive_mysql, naive_redis
from benchmarks.private_servers import private_mariadb, private_redis
from vcdl.checks import UploadCheck
from vcdl.loop.streamed_upload import FoldSettings, StreamedUpload, open_fold
from vcdl.report.wording import group_digits
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.stores.base import Fold, WeightStore
from vcdl.stores.open import open_store
from vcdl.stores.settings import Consistency, StoreSettings
from vcdl.trust.contract import UploadFacts
from vcdl.trust.own import Own
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.weights import write_weights

PAPER_PARAMS = 4_972_746
"""Weights of the paper's model, for which the targets are."""
WAITING = 8
"""Results in a fold of several."""
PAPER_RATIO = 1.5
"""The time of an update in MySQL / in Redis: 1.29 s / 0.87 s, section IV-D of Atre, Jha, Rao (2021)."""
_NAIVE_LIMIT_BYTES = 256 << 20
"""A value of Redis is limited to 512 MB, an escaped literal of MariaDB to half of a packet of 1 GB."""
_CACHE_BYTES = 1 << 30
"""More than the largest processor caches hold."""
_SERVER_FOLDS = 6
"""Folds by each server when the updates/s of one and of two servers are measured."""


@dataclass(frozen=True)
class StoreTiming:
    """A row of the table."""

    case: str
    store: str
    waiting: int
    ms_per_update: float


@dataclass(frozen=True)
class Target:
    """A ratio of two cases, and its limit."""

    what: str
    ratio: float
    limit: float

    @property
    def is_met(self) -> bool:
        return self.ratio <= self.limit


@dataclass(frozen=True)
class StoreBench:
    """The result of a benchmark."""

    params: int
    rounds: int
    rows: tuple[StoreTiming, ...]
    updates_per_s: dict[str, float]
    """By store, consistency and number of servers (`redis strong 2`), with WAITING results in each fold."""
    targets: tuple[Target, ...]

    def ms(self, case: str, store: str, waiting: int = 1) -> float | None:
        """ms per update; None when the case was not measured."""
        found = (row.ms_per_update for row in self.rows if (row.case, row.store, row.waiting) == (case, store, waiting))
        return next(found, None)


class _Uploads:
    """Files of weights as clients send them.

    The files are used in turn, because a result that has just arrived is never in the processor's cache.
    """

    def __init__(self, folder: Path, params: int, number: int = WAITING) -> None:
        self.params = params
        self.paths = [folder / f"{index}.h5" for index in range(number)]
        self._taken = count()
        self._layout = Layout((Variable("w", (params,), 0),))
        self._check = UploadCheck("bench", self._layout, (1,), 1, params**0.5)

    def write(self) -> None:
        generator = np.random.default_rng(1)
        for path in self.paths:
            write_weights(path, generator.standard_normal(self.params, np.float32), "{}")

    def next_path(self) -> Path:
        return self.paths[next(self._taken) % len(self.paths)]

    def folds(self, waiting: int, server: str = "") -> list[Fold]:
        """New results, as many as wait; each is read from its file."""
        return [self._fold(next(self._taken), server) for _ in range(waiting)]

    def _fold(self, number: int, server: str) -> Fold:
        path, subtask = self.paths[number % len(self.paths)], f"{server}s{number}"
        return Fold(subtask, subtask, 0, partial(self._begin, path))

    def _begin(self, path: Path, staleness: int) -> StreamedUpload:
        settings, facts = (
            FoldSettings(self._layout, VcAsgd(alpha=float(ALPHA)), Own().measurement),
            UploadFacts(1, staleness, 1, 1.0),
        )
        return open_fold(path, None, settings, facts, judge=self._check.judge)


def bench_store(params: int, rounds: int, say: Callable[[str], None]) -> StoreBench:
    """Measure every store with vectors of `params` float32.

    Raises StoreError when a server program is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="vcdl-") as name, ExitStack() as servers:
        folder = Path(name)
        say("starting a Redis and a MariaDB")
        redis = StoreSettings.parse(servers.enter_context(private_redis(folder)).url)
        mariadb = private_mariadb(folder, "--max-allowed-packet=1G")
        mysql = StoreSettings.parse(servers.enter_context(mariadb).url)
        file = StoreSettings.parse(f"file:{folder / 'store'}")
        uploads = _Uploads(folder, params)
        uploads.write()
        cases = dict(_cases(uploads, {"file": file, "redis": redis, "mysql": mysql}))
        times_ms: dict[tuple[str, str, int], list[float]] = {case: [] for case in cases}
        for number in range(rounds + 1):
            say(f"round {number} of {rounds}" if number else "warming up")
            for case in _shuffled(list(cases), number):
                elapsed_ms = _timed_ms(cases[case]) / _updates(case)
                if number:
                    times_ms[case].append(elapsed_ms)
        rows = tuple(StoreTiming(*case, round(statistics.median(times), 3)) for case, times in times_ms.items())
        rates = _rates({"file": file, "redis": redis, "mysql": mysql}, uploads, -(-rounds // 3), say)
    return _with_targets(StoreBench(params, rounds, rows, rates, ()))


def _rates(
    stores: dict[str, StoreSettings], uploads: _Uploads, rounds: int, say: Callable[[str], None]
) -> dict[str, float]:
    """Updates/s of one server and of two, medians; fewer rounds than for the rest, as each starts new processes."""
    measured: dict[str, list[float]] = {}
    for number in range(1, rounds + 1):
        for store, consistency in _levels(stores):
            for servers in (1, 2):
                say(f"round {number} of {rounds}: {servers} server{'s'[: servers - 1]} on {store}, {consistency}")
                settings = replace(stores[store], consistency=Consistency(consistency))
                rate = _updates_per_s(settings, f"rate-{consistency}-{servers}-{number}", uploads, servers)
                measured.setdefault(f"{store} {consistency} {servers}", []).append(rate)
    return {name: round(statistics.median(rates), 2) for name, rates in measured.items()}


def _levels(stores: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(store, consistency): a folder is always strong."""
    for store in stores:
        yield store, "strong"
        if store != "file":
            yield store, "eventual"


def _cases(
    uploads: _Uploads, stores: dict[str, StoreSettings]
) -> Iterator[tuple[tuple[str, str, int], Callable[[], object]]]:
    """(case, store, waiting) and the call that is timed."""
    one = np.ones(uploads.params, np.float32)
    yield ("memory floor", "", WAITING), _memory_floor(one)
    if one.nbytes <= _NAIVE_LIMIT_BYTES:
        for name, update in (
            ("redis", naive_redis(stores["redis"], one)),
            ("mysql", naive_mysql(stores["mysql"], one)),
        ):
            yield ("naive", name, 1), lambda update=update: update(uploads.next_path())  # type: ignore[misc]
    for name, consistency in _levels(stores):
        for waiting in (1, WAITING):
            yield (consistency, name, waiting), _folding(stores[name], consistency, one, uploads, waiting)


def _memory_floor(vector: Vector) -> Callable[[], object]:
    """Read two vectors and write one; enough vectors are read in turn that none is in the processor's cache."""
    read = [np.ones_like(vector) for _ in range(min(WAITING, -(-_CACHE_BYTES // vector.nbytes)))]
    taken, out = cycle(read), np.ones_like(vector)
    # As many in a row as are folded at once: a single pass of 2 ms would fit between the interruptions of a busy
    # machine.
    return lambda: [np.add(vector, next(taken), out=out) for _ in range(WAITING)]


def _updates(case: tuple[str, str, int]) -> int:
    """Updates in one timing. For the file store as many as for the floor that it is compared with: a few ms alone
    meet cold caches."""
    return WAITING if case[1] in ("", "file") else case[2]


def _folding(
    settings: StoreSettings, consistency: str, vector: Vector, uploads: _Uploads, waiting: int
) -> Callable[[], object]:
    store = _opened(settings, consistency, f"{consistency}{waiting}", vector)
    times = _updates((consistency, settings.service, waiting)) // waiting
    return lambda: [store.fold(uploads.folds(waiting)) for _ in range(times)]


def _opened(settings: StoreSettings, consistency: str, job: str, vector: Vector) -> WeightStore:
    store = open_store(replace(settings, consistency=Consistency(consistency)), job, vector.size)
    store.create(vector)
    return store


def _shuffled(cases: list[tuple[str, str, int]], number: int) -> list[tuple[str, str, int]]:
    """Another order for each round: a case after a long rest finds cold caches and a server that has returned its
    memory."""
    random.Random(number).shuffle(cases)
    return cases


def _timed_ms(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


def _updates_per_s(settings: StoreSettings, job: str, uploads: _Uploads, servers: int) -> float:
    """Updates/s of several server processes on one store, with WAITING results in each fold."""
    open_store(settings, job, uploads.params).create(np.zeros(uploads.params, np.float32))
    spawn = multiprocessing.get_context("spawn")
    begin, end = spawn.Barrier(servers + 1), spawn.Barrier(servers + 1)
    folder = uploads.paths[0].parent
    processes = [
        spawn.Process(
            target=_serve, args=(settings, job, folder, uploads.params, f"server{number}", begin, end), daemon=True
        )
        for number in range(servers)
    ]
    for process in processes:
        process.start()
    begin.wait(120)
    elapsed_ms = _timed_ms(lambda: end.wait(600))
    for process in processes:
        process.join()
    return servers * _SERVER_FOLDS * WAITING / elapsed_ms * 1e3


def _serve(settings: StoreSettings, job: str, folder: Path, params: int, name: str, begin: Any, end: Any) -> None:
    uploads = _Uploads(folder, params)
    store = open_store(settings, job, params)
    store.fold(uploads.folds(WAITING, name))
    begin.wait()
    for _ in range(_SERVER_FOLDS):
        store.fold(uploads.folds(WAITING, name))
    end.wait()


def _with_targets(bench: StoreBench) -> StoreBench:
    wanted = (
        (f"Redis strong, {WAITING} waiting / naive Redis", ("strong", "redis", WAITING), ("naive", "redis", 1), 1 / 5),
        ("Redis strong, 1 waiting / naive Redis", ("strong", "redis", 1), ("naive", "redis", 1), 1.0),
        (
            f"MariaDB strong, {WAITING} waiting / naive MariaDB",
            ("strong", "mysql", WAITING),
            ("naive", "mysql", 1),
            1 / 6,
        ),
        (
            f"file store, {WAITING} waiting / memory floor",
            ("strong", "file", WAITING),
            ("memory floor", "", WAITING),
            3.0,
        ),
        (
            f"Redis strong / eventual, {WAITING} waiting",
            ("strong", "redis", WAITING),
            ("eventual", "redis", WAITING),
            1.3,
        ),
        ("Redis strong / eventual, 1 waiting", ("strong", "redis", 1), ("eventual", "redis", 1), 1.3),
        (
            f"MariaDB strong / eventual, {WAITING} waiting",
            ("strong", "mysql", WAITING),
            ("eventual", "mysql", WAITING),
            1.3,
        ),
        ("MariaDB strong / eventual, 1 waiting", ("strong", "mysql", 1), ("eventual", "mysql", 1), 1.3),
    )
    targets = []
    for what, above, below, limit in wanted:
        numerator, denominator = bench.ms(*above), bench.ms(*below)
        if numerator and denominator:
            targets.append(Target(what, round(numerator / denominator, 3), round(limit, 3)))
    return replace(bench, targets=tuple(targets))


def lines_of(bench: StoreBench) -> list[str]:
    """The table as lines."""
    lines = [f"ms per update of {group_digits(bench.params)} weights, median of {bench.rounds}", ""]
    lines += [f"{'':<22}{'waiting':>8}{'ms':>10}{'/ naive':>10}{'/ floor':>10}"]
    floor = bench.ms("memory floor", "", WAITING)
    for row in bench.rows:
        naive = bench.ms("naive", row.store)
        ratios = [f"{row.ms_per_update / by:.2f}" if by else "" for by in (naive, floor)]
        lines.append(
            f"{row.store + ' ' + row.case:<22}{row.waiting:>8}{row.ms_per_update:>10.1f}{ratios[0]:>10}{ratios[1]:>10}"
        )
    lines += ["", f"updates/s with {WAITING} waiting", ""]
    lines += [
        f"{name + (' server' if name.endswith('1') else ' servers'):<28}{rate:>12.1f}"
        for name, rate in bench.updates_per_s.items()
    ]
    lines += ["", f"MySQL / Redis, the paper: {PAPER_RATIO}"]
    for case, waiting in (("naive", 1), ("strong", 1), ("strong", WAITING), ("eventual", 1)):
        mysql, redis = bench.ms(case, "mysql", waiting), bench.ms(case, "redis", waiting)
        if mysql and redis:
            lines.append(f"MySQL / Redis, {case}, {waiting} waiting: {mysql / redis:.1f}")
    of_others = "" if bench.params == PAPER_PARAMS else f", set for {group_digits(PAPER_PARAMS)} weights"
    lines += ["", f"targets{of_others}", ""]
    for target in bench.targets:
        verdict = "met    " if target.is_met else "MISSED "
        if of_others:
            verdict = ""  # the targets are not for them
        lines.append(f"{verdict}{target.what}: {target.ratio:.2f} (≤ {target.limit:.2f})")
    return lines


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_store", description=__doc__.partition("\n")[0])
    parser.add_argument("--params", type=int, default=PAPER_PARAMS, metavar="N", help="weights of the model")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="of which the median counts")
    options = parser.parse_args()
    print(*lines_of(bench_store(options.params, options.rounds, lambda words: print(words, file=sys.stderr))), sep="\n")


if __name__ == "__main__":
    main()
