"""The weight store on a Redis server (7 or later).

The keys (the braces keep a job's keys on one node of a cluster):

    vcdl:{JOB}:head           hash: era, generation, version, kept, size (weights), chunk_bytes, chunks (their number);
                              applied:SUBTASK → "VERSION STALENESS WEIGHT TRUST WORKUNIT", once it is applied
    vcdl:{JOB}:GENERATION:I   string: chunk I, from 0, of the weights of that generation, and its seal (chunks.py)
    vcdl:{JOB}:turn           string: the server that applies now; it expires, so that a dead server loses its turn

A write first stores new chunks under a new generation, with an expiry. One script then compares the head, records the
subtasks, makes the new chunks permanent and deletes the old ones. A server that is killed before the script has changed
nothing, and its chunks expire. The turn only saves work: if two servers believe that they have it, the script refuses
one of them. Version and records are in one key, so they can only be lost together.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from vcdl.errors import StoreError, StoreLost, StoreUnavailable, one_line
from vcdl.errors.backoff import wait_until
from vcdl.rules.state import STATELESS, RuleState
from vcdl.stores.base import Applied, Conflict
from vcdl.stores.chunks import CHUNK_BYTES, chunk_count, chunks, seal, unseal
from vcdl.stores.redis_connection import ServerSilent, open_client, problem_of, translate_errors
from vcdl.stores.server_store import Head, ServerStore, fresh_name
from vcdl.stores.settings import StoreSettings
from vcdl.wire.layout import Vector

_UNCOMMITTED_S = 3600
"""Seconds after which chunks expire unless a script has made them permanent; a write must take less time."""
_SCANNED = 10_000
"""Fields of the head that Redis scans in one call, so that it is not blocked for long."""

# KEYS: head, turn. ARGV: 1 old generation ("" none, "*" any), 2 new generation, 3 era, 4 version, 5
# kept, 6 size, 7 chunk_bytes, 8 chunks, 9 prefix of chunk keys, 10 the writer, whose turn ends; then three for
# each record: field, version, the rest. Returns the version made, or −1: the head is another one, or a
# subtask has a record; −2: a new chunk is gone.
_REPLACE = """
local head = redis.call('HMGET', KEYS[1], 'generation', 'version', 'chunks', 'era')
local generation = head[1] or ''
if ARGV[1] == '*' then
  if head[4] ~= ARGV[3] then return -1 end
elseif generation ~= ARGV[1] then
  return -1
end
local is_same_era = head[4] == ARGV[3]
for i = 11, #ARGV, 3 do
  if is_same_era and redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then return -1 end
end
local chunks = tonumber(ARGV[8])
for i = 0, chunks - 1 do
  if redis.call('EXISTS', ARGV[9] .. ARGV[2] .. ':' .. i) == 0 then return -2 end
end
local count = (#ARGV - 10) / 3
local shift = 0
if ARGV[1] == '*' then shift = tonumber(head[2]) + count - tonumber(ARGV[4]) end
local version = tonumber(ARGV[4]) + shift
for i = 0, chunks - 1 do redis.call('PERSIST', ARGV[9] .. ARGV[2] .. ':' .. i) end
if not is_same_era then redis.call('UNLINK', KEYS[1]) end
for i = 11, #ARGV, 3 do
  local record = string.format('%d %s', tonumber(ARGV[i + 1]) + shift, ARGV[i + 2])
  redis.call('HSET', KEYS[1], ARGV[i], record)
end
redis.call('HSET', KEYS[1], 'generation', ARGV[2], 'era', ARGV[3], 'version', string.format('%d', version),
  'kept', ARGV[5], 'size', ARGV[6], 'chunk_bytes', ARGV[7], 'chunks', ARGV[8])
for i = 0, tonumber(head[3] or '0') - 1 do redis.call('UNLINK', ARGV[9] .. generation .. ':' .. i) end
if redis.call('GET', KEYS[2]) == ARGV[10] then redis.call('DEL', KEYS[2]) end
return version
"""

# KEYS: turn, head. ARGV: the server that wants it, for how many ms; the head's fields. Returns their values, or nothing
# while another server has the turn. A server that lost its connection during its turn takes the same turn again.
_TAKE_TURN = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return false end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('HMGET', KEYS[2], unpack(ARGV, 3))
"""

# KEYS: turn. ARGV: the server that has it.
_LEAVE_TURN = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"

# KEYS: head, turn. ARGV: prefix of chunk keys. Chunks that are not committed expire automatically.
_DROP = """
local head = redis.call('HMGET', KEYS[1], 'generation', 'chunks')
for i = 0, tonumber(head[2] or '0') - 1 do redis.call('UNLINK', ARGV[1] .. head[1] .. ':' .. i) end
redis.call('UNLINK', KEYS[1], KEYS[2])
"""

_HEAD = ("era", "generation", "version", "kept", "size", "chunk_bytes")
"""The head's fields; the scripts also know `chunks`."""


class RedisStore(ServerStore):
    """Versioned weights in Redis; any number of processes may use it simultaneously."""

    def __init__(
        self, settings: StoreSettings, job: str, size: int, chunk_bytes: int = CHUNK_BYTES, state: RuleState = STATELESS
    ) -> None:
        """Prepare a store without connecting.

        Args:
            settings: The server.
            job: The job's name, which is a part of all keys.
            size: The number of weights n.
            chunk_bytes: Bytes of a chunk (vcdl.stores.chunks).
            state: The layout of the update rule's own numbers, which follow W.
        """
        super().__init__(settings, job, size, chunk_bytes, state)
        self._prefix = f"vcdl:{{{job}}}:"
        self._keys = [self._key("head"), self._key("turn")]
        self._name = fresh_name()
        self._has_turn = False
        self._turn_s = 2.0 + self._size * 4 / 50e6
        """Enough to apply several uploads from a slow disk. A slower server loses its turn, and applies them again."""
        self._redis = open_client(settings)
        self._replace_script = self._redis.register_script(_REPLACE)
        self._take_turn_script = self._redis.register_script(_TAKE_TURN)
        self._leave_turn_script = self._redis.register_script(_LEAVE_TURN)
        self._drop_script = self._redis.register_script(_DROP)

    def check_service(self) -> None:
        with translate_errors(self._settings):
            facts: dict[str, Any] = self._redis.info()
        if facts.get("role") == "slave":  # temporary: it may become the primary
            raise StoreUnavailable(
                f"{self._settings} is a replica, which accepts no writes: "
                f"name its primary, {facts['master_host']}:{facts['master_port']}"
            )
        problem = problem_of(facts)
        if problem:
            raise StoreError(f"{self._settings} {problem}")

    def drop(self) -> None:
        with translate_errors(self._settings):
            self._drop_script(keys=self._keys, args=[self._prefix])

    def close(self) -> None:
        self._redis.close()

    def _head(self) -> Head | None:
        with translate_errors(self._settings):
            return _head_of(self._redis.hmget(self._key("head"), _HEAD))

    @contextmanager
    def _snapshot(self) -> Iterator[Head | None]:
        yield self._head()

    @contextmanager
    def _turn(self) -> Iterator[Head | None]:
        head = self._take_turn()
        try:
            yield head
        except ServerSilent:
            self._has_turn = False  # the turn cannot be returned either: it expires
            raise
        finally:
            if self._has_turn:
                with suppress(StoreError), translate_errors(self._settings):  # a turn that cannot be returned expires
                    self._leave_turn_script(keys=[self._key("turn")], args=[self._name])
                self._has_turn = False

    def _take_turn(self) -> Head | None:
        """Wait a limited time for this server's turn; return the head in any case, or None if there is no head."""
        keys, arguments = [self._key("turn"), self._key("head")], [self._name, int(self._turn_s * 1000), *_HEAD]
        with translate_errors(self._settings):
            ask = partial(self._take_turn_script, keys=keys, args=arguments)
            # Wait up to twice the longest turn: by then the turn of a dead server has expired.
            values: list[bytes | None] | None = wait_until(ask, 2 * self._turn_s, every_s=0.002)
            if values is not None:
                self._has_turn = True
                return _head_of(values)
        return self._head()  # other servers are always faster: the script decides

    def _load(self, head: Head, out: Vector) -> None:
        for number, chunk in enumerate(chunks(out, head.chunk_bytes)):
            with translate_errors(self._settings):
                kept: bytes | None = self._redis.get(self._chunk_key(head.generation, number))
            data = unseal(kept, len(chunk), head.generation, number)
            if data is None:
                # Chunks of an old generation are deleted by the next write. A missing chunk is a loss only if the head
                # still names its generation.
                now = self._head()
                if now is not None and now.generation == head.generation:
                    raise self._lost_chunk(number)
                raise Conflict
            chunk[:] = data

    def _find(self, subtasks: Sequence[str]) -> Mapping[str, Applied]:
        if not subtasks:
            return {}
        with translate_errors(self._settings):
            records: list[bytes | None] = self._redis.hmget(self._key("head"), list(map(_field, subtasks)))
        return {
            subtask: _decode(subtask, record)
            for subtask, record in zip(subtasks, records, strict=True)
            if record is not None
        }

    def _records(self, after_version: int) -> list[Applied]:
        prefix = _field("")
        with translate_errors(self._settings):
            # Use HSCAN and not HGETALL: Redis serves no other client while it collects all fields of a long job.
            fields = list(self._redis.hscan_iter(self._key("head"), match=f"{prefix}*", count=_SCANNED))
        records = [_decode(field.decode().removeprefix(prefix), record) for field, record in fields]
        return [record for record in records if record.version > after_version]

    def _replace(self, old: Head | None, new: Head, vector: Vector, applied: Sequence[Applied], *, anyway: bool) -> int:
        compared = "*" if anyway else "" if old is None else old.generation
        arguments: list[str | int] = [compared, new.generation, new.era, new.version, new.kept, new.size]
        arguments += [new.chunk_bytes, chunk_count(new.size, new.chunk_bytes), self._prefix, self._name]
        for record in applied:
            arguments += [_field(record.subtask), record.version, _encode(record)]
        # Write the chunks first, under a new name and with an expiry: a kill before the script leaves only garbage that
        # expires, and no partial version.
        self._write(new, vector)
        with translate_errors(self._settings):
            made = int(self._replace_script(keys=self._keys, args=arguments))
        if made >= 0:
            # The script has returned the turn in the same step.
            self._has_turn = False
            return made
        self._discard(new)
        if made == -2:
            raise StoreUnavailable(
                f"{self._settings} dropped weights while they were written: it was restarted, or its memory is full "
                "(see maxmemory and maxmemory-policy in redis.conf; noeviction is what VCDL needs)"
            )
        raise Conflict

    def _write(self, head: Head, vector: Vector) -> None:
        """Write a head's chunks with an expiry; after an error that the server answered, remove them again."""
        try:
            with translate_errors(self._settings), self._redis.pipeline(transaction=False) as pipeline:
                for number, chunk in enumerate(chunks(vector, head.chunk_bytes)):
                    kept = seal(chunk, head.generation, number)
                    pipeline.set(self._chunk_key(head.generation, number), kept, ex=_UNCOMMITTED_S)
                pipeline.execute()
        except ServerSilent:
            raise  # chunks that were written expire
        except StoreError:
            self._discard(head)  # do not wait for their expiry in an hour: Redis may be out of memory
            raise

    def _discard(self, head: Head) -> None:
        """Remove a head's chunks, which were not committed; ignore errors, since they expire."""
        with suppress(StoreError), translate_errors(self._settings):
            for number in range(chunk_count(head.size, head.chunk_bytes)):
                self._redis.unlink(self._chunk_key(head.generation, number))

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _chunk_key(self, generation: str, number: int) -> str:
        return f"{self._prefix}{generation}:{number}"


def _head_of(values: Sequence[bytes | None]) -> Head | None:
    """Return the head from its fields' values, in the order of _HEAD, or None if one is missing.

    Raises:
        StoreError: A value is invalid.
    """
    fields = [value for value in values if value is not None]
    if len(fields) < len(_HEAD):
        return None
    era, generation, *numbers = fields
    try:
        version, kept, size, chunk_bytes = map(int, numbers)
        if size < 0 or chunk_bytes < 1:
            raise ValueError("a number is too small")
        return Head(era.decode(), generation.decode(), version, kept, size, chunk_bytes)
    except ValueError as error:
        raise StoreError(
            f"the head of the weights in Redis is damaged ({one_line(error)}): restore a backup of it, or delete the "
            "run's keys, and the next server restores the weights from a snapshot"
        ) from error


def _field(subtask: str) -> str:
    return f"applied:{subtask}"


def _encode(record: Applied) -> str:
    return f"{record.staleness} {record.weight!r} {record.trust!r} {record.workunit}"


def _decode(subtask: str, record: bytes) -> Applied:
    """Return the record of a subtask. Raises StoreLost if it is damaged."""
    try:
        version, staleness, weight, trust, workunit = record.decode().split(" ", 4)
        applied = Applied(subtask, workunit, int(version), int(staleness), float(weight), float(trust))
        if not (math.isfinite(applied.weight) and math.isfinite(applied.trust)):
            raise ValueError("a number is not finite")
    except ValueError as error:
        raise StoreLost(
            f"the record of {subtask} in Redis is damaged ({one_line(error)}): the weights must be rebuilt"
        ) from error
    return applied
