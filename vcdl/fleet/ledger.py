"""Read and append to a fleet's ledger, from which its cost is computed.

Each line is a fact (ledger_rows). A process appends under a lock, after it has read all lines of others, so that no
fact is written twice. A line counts once its line break is on the disk: if a writer is killed before, readers ignore
what follows the last line break, and the next writer removes it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path

from vcdl.errors import FleetError, first_fault
from vcdl.files.atomic import sync
from vcdl.files.lock import locked
from vcdl.fleet.instance import Ending, Instance, Pool
from vcdl.fleet.instance_history import FleetHistory
from vcdl.fleet.ledger_rows import EndedRow, LaunchedRow, LeasedRow, LedgerRow, PricedRow, SeenRow, decode, encode

PriceOf = Callable[[Pool], PricedRow | None]
"""Returns a pool's current price, or None if no table has one. Its `since_s` is the earliest time since which it may
hold, or 0 if that is unknown."""


class Ledger:
    """A fleet's ledger in a file, which need not exist yet.

    Several processes may write to it simultaneously. An object keeps what it has read, and reads only new lines.
    """

    def __init__(self, path: Path, price_of: PriceOf = lambda _: None, ends_after_s: float = 0.0) -> None:
        """Prepare the ledger.

        Args:
            path: The file.
            price_of: Returns the current price of a pool, which is recorded with the pool's instances if it is new.
            ends_after_s: Seconds after the end of its lease at which an instance is certainly off.
        """
        self.path = path
        self._price_of = price_of
        self._ends_after_s = ends_after_s
        self._history = FleetHistory()
        self._read_bytes = 0
        self._read_lines = 0

    def history(self) -> FleetHistory:
        """Return the facts in the file, after reading lines that were added since the last call.

        The result is shared: later calls change it.

        Raises:
            FleetError: The file cannot be read, or is not a ledger.
        """
        with self._map_errors(), suppress(FileNotFoundError), self.path.open("rb", buffering=0) as file:
            self._catch_up(file)
        return self._history

    def record_launched(self, instances: Sequence[Instance], now_s: float) -> None:
        """Record what is new about some instances: launches, ends, leases and prices.

        Unlike `record_found` this says nothing about other instances. So it also records instances that a launch
        returned before the cloud lists them.

        Raises:
            FleetError: The ledger cannot be written.
        """
        with self._alone() as file:
            self._append(file, self._news(instances, now_s))

    def record_found(self, found: Sequence[Instance], now_s: float) -> None:
        """Record what is new in an answer of the cloud, and that it lists exactly these instances.

        Known instances that it does not list count as missing from then on.

        Raises:
            FleetError: The ledger cannot be written.
        """
        with self._alone() as file:
            rows = self._news(found, now_s)
            live = frozenset(instance.id for instance in found if instance.is_live)
            # Use the short form (None) if the same instances are live as before, as in most passes: otherwise each pass
            # would write all ids.
            seen = SeenRow(now_s, None if live == self._history.live else tuple(sorted(live)))
            self._append(file, [*rows, seen])

    def _news(self, found: Sequence[Instance], now_s: float) -> list[LedgerRow]:
        rows: list[LedgerRow] = [row for instance in found for row in self._life(instance, now_s)]
        leases: dict[float, list[str]] = {}
        for instance in found:
            known = self._history.leases.get(instance.id)
            if instance.is_live and instance.until_s and (known is None or known.until_s != instance.until_s):
                leases.setdefault(instance.until_s, []).append(instance.id)
        rows += (LeasedRow(tuple(ids), until_s, until_s + self._ends_after_s) for until_s, ids in leases.items())
        prices = (self._new_price(pool, now_s) for pool in dict.fromkeys(instance.pool for instance in found))
        return [*rows, *dict.fromkeys(filter(None, prices))]  # two pools may differ in their subnet only

    def _life(self, instance: Instance, now_s: float) -> Iterator[LedgerRow]:
        """Yield the rows of an instance's launch and of its end, unless they are recorded already."""
        if instance.id not in self._history.launched:
            pool = instance.pool
            what = pool.cloud, pool.type, pool.region, pool.zone, instance.vcpus, instance.gpus
            yield LaunchedRow(instance.id, *what, instance.launched_s, pool.on_demand)
        if not instance.is_live:
            # If the cloud does not report the time, use that of the first pass that sees the end, the upper bound.
            ended_s = now_s if instance.ended_s is None else instance.ended_s
            end = EndedRow(instance.id, ended_s, instance.ending or Ending.UNKNOWN)
            if self._history.is_news(end):
                yield end

    def _new_price(self, pool: Pool, now_s: float) -> PricedRow | None:
        """Return the row to record for a pool's price, or None if there is no price or the last row has the same one.

        A price that rose counts from the earliest time since which it may hold, a lower one from now on, so that the
        computed cost is never too low.
        """
        if (price := self._price_of(pool)) is None:
            return None
        last = self._history.prices.get((price.type, price.region, price.zone), [None])[-1]
        if last is None:
            return replace(price, since_s=now_s)
        is_dearer = price.spot_usd_per_h > last.spot_usd_per_h
        # The time of the change is unknown: at the earliest when the price was last seen to be lower.
        row = replace(price, since_s=max(price.since_s, last.since_s) if is_dearer and price.since_s else now_s)
        return None if replace(row, since_s=last.since_s, source=last.source) == last else row

    @contextmanager
    def _alone(self) -> Iterator[FileIO]:
        """Lock the file, read its new lines, and yield it open for appending; create it if necessary."""
        with self._map_errors():
            is_new = not self.path.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Read everything under the lock, before deciding what is news: another process may have written it already.
            with locked(self.path), self.path.open("a+b", buffering=0) as file:
                if is_new:
                    sync(self.path.parent)  # otherwise a power cut could lose the new file's name
                self._catch_up(file)
                yield file

    def _append(self, file: FileIO, rows: Sequence[LedgerRow]) -> None:
        if not rows:
            return
        try:
            lines = memoryview(b"".join(map(encode, rows)))
        except ValueError as error:
            raise FleetError(
                f"{self.path} cannot store a row that could not be read back ({first_fault(error)})"
            ) from error
        file.truncate(self._read_bytes)  # an unfinished line of a killed writer
        try:
            while lines:
                lines = lines[file.write(lines) :]
            # Sync to the disk before the pass acts: a power cut must not forget machines that cost.
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(self._read_bytes)
            raise
        self._catch_up(file)

    def _catch_up(self, file: FileIO) -> None:
        # Rows that were applied cannot be removed from the history, so a replaced file is an error and not a fresh
        # start.
        if file.seek(0, os.SEEK_END) < self._read_bytes:
            raise FleetError(f"{self.path} became shorter, so somebody replaced it: restore it, or restart vcdl")
        file.seek(self._read_bytes)
        # Ignore the unfinished last line, which another process may be writing now.
        whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return
        for line in whole.split(b"\n"):
            try:
                row = decode(line)
            except ValueError as error:
                raise FleetError(
                    f"{self.path}, line {self._read_lines + 1}, is not a row of a ledger ({first_fault(error)}): "
                    "a newer version of vcdl may have written it, otherwise remove the line"
                ) from error
            self._history.apply(row)
            self._read_lines += 1
            # Advance line by line: after a bad line the next call starts at that line, and applies no line twice.
            self._read_bytes += len(line) + 1

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FleetError(
                f"the ledger {self.path} cannot be read or written ({error.strerror or error}): "
                "check the disk's free space and the folder's permissions; costs are not recorded until then"
            ) from error
