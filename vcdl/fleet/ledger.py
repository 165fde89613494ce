"""What a fleet has had and when, in a file that only grows: the money is counted from it.

Each line is a fact (vcdl/fleet/ledger_rows.py). Writers take turns by a lock on the file, read what the others wrote, and add only what is
new; a line counts once it ends in a line break and is on the disk. What a writer that was killed has left of a line is cut off by the next.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vcdl.errors import FleetError
from vcdl.fleet.instance import Ending, Instance, Pool
from vcdl.fleet.ledger_rows import EndedRow, LaunchedRow, LedgerRow, PricedRow, SeenRow, decode, encode
from vcdl.fleet.lives import Lives
from vcdl.fleet.prices import Price
from vcdl.fleet.settings import CpuCredits

PriceOf = Callable[[Pool], Price | None]
"""The price of a pool's instances now; None: no table knows it."""


class Ledger:
    """The ledger in a file, which need not exist; several processes may write to it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lives = Lives()
        self._read_bytes = 0
        self._read_lines = 0

    def lives(self) -> Lives:
        """All that is in the file by now. Raises FleetError for a file that cannot be read, or is not a ledger."""
        with self._mapped_errors(), suppress(FileNotFoundError):
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._catch_up(descriptor)
            finally:
                os.close(descriptor)
        return self._lives

    def launched(self, instances: Sequence[Instance], price_of: PriceOf, now_s: float, cpu_credits: CpuCredits) -> None:
        """Note what a launch has returned, before the cloud shows it. Raises FleetError."""
        with self._alone() as append:
            append(self._news(instances, price_of, now_s, cpu_credits))

    def observed(self, found: Sequence[Instance], price_of: PriceOf, now_s: float, cpu_credits: CpuCredits) -> None:
        """Note what the cloud shows: all of the fleet's instances. Those of before that are not among them have vanished. Raises FleetError."""
        with self._alone() as append:
            rows = self._news(found, price_of, now_s, cpu_credits)
            here = frozenset(instance.id for instance in found if instance.is_live)
            append([*rows, SeenRow(now_s, None if here == self._lives.here else tuple(sorted(here)))])

    def _news(
        self, found: Sequence[Instance], price_of: PriceOf, now_s: float, cpu_credits: CpuCredits
    ) -> list[LedgerRow]:
        rows: list[LedgerRow] = []
        for instance in found:
            pool = instance.pool
            if instance.id not in self._lives.launched:
                place = pool.cloud, pool.type, pool.region, pool.zone
                rows.append(
                    LaunchedRow(instance.id, *place, instance.vcpus, instance.gpus, cpu_credits, instance.launched_s)
                )
            if not instance.is_live:
                ended_s = now_s if instance.ended_s is None else instance.ended_s
                end = EndedRow(instance.id, ended_s, instance.ending or Ending.UNKNOWN)
                if self._lives.is_news(end):
                    rows.append(end)
        for pool in {instance.pool: None for instance in found}:
            row = self._new_price(pool, price_of, now_s)
            if row is not None and row not in rows:  # pools may differ in their subnet only
                rows.append(row)
        return rows

    def _new_price(self, pool: Pool, price_of: PriceOf, now_s: float) -> PricedRow | None:
        price = price_of(pool)
        if price is None:
            return None
        row = PricedRow(
            pool.type,
            pool.region,
            pool.zone,
            now_s,
            price.on_demand_usd_per_h,
            price.spot_usd_per_h,
            price.as_of.isoformat(),
            price.source,
        )
        known = self._lives.courses.get((pool.type, pool.region, pool.zone))
        if known and (known[-1].on_demand_usd_per_h, known[-1].spot_usd_per_h, known[-1].as_of) == (
            row.on_demand_usd_per_h,
            row.spot_usd_per_h,
            row.as_of,
        ):
            return None
        return row

    @contextmanager
    def _alone(self) -> Iterator[Callable[[Sequence[LedgerRow]], None]]:
        """Everything is read, and nobody else writes; the kernel lets go of the lock when its holder dies."""
        with self._mapped_errors():
            is_new = not self._path.exists()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o664)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if is_new:
                    _make_durable(self._path.parent)
                self._catch_up(descriptor)
                yield lambda rows: self._append(descriptor, rows)
            finally:
                os.close(descriptor)

    def _append(self, descriptor: int, rows: Sequence[LedgerRow]) -> None:
        if not rows:
            return
        lines = memoryview("".join(map(encode, rows)).encode())
        os.ftruncate(descriptor, self._read_bytes)  # what a killed writer has left of a line
        try:
            while lines:
                lines = lines[os.write(descriptor, lines) :]
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, self._read_bytes)
            raise
        self._catch_up(descriptor)

    def _catch_up(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_size < self._read_bytes:
            raise FleetError(f"{self._path} has become shorter: somebody has replaced it; put it back, or start again")
        os.lseek(descriptor, self._read_bytes, os.SEEK_SET)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return
        for line in whole.split(b"\n"):
            try:
                row = decode(line.decode())
            except ValueError as error:
                raise FleetError(
                    f"{self._path}, line {self._read_lines + 1}, is no row of a ledger ({error}): a newer version of vcdl may have "
                    "written it, otherwise remove the line"
                ) from error
            self._lives.fold(row)
            self._read_lines += 1
            self._read_bytes += len(line) + 1

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FleetError(
                f"the ledger {self._path} cannot be read or written ({error.strerror or error}): mind the disk's free space and the "
                "folder's rights; no money is counted until then"
            ) from error


def _make_durable(folder: Path) -> None:
    """A file's name is on the disk only when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
