"""Copies of a store's data, made and put back behind VCDL's back while servers are at work."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.served_run import ServedRun
from tests.stores.conftest import redis_client


class Backups(Protocol):
    """Copies of a store's data, made and put back behind VCDL's back."""

    url: str

    def make(self, run: ServedRun) -> Any: ...

    def put_back(self, run: ServedRun, backup: Any) -> None: ...


@dataclass
class FolderBackups:
    """A copied folder."""

    url: str = ""

    def make(self, run: ServedRun) -> Any:
        copy = Path(tempfile.mkdtemp(dir=run.folder.path)) / "store"
        shutil.copytree(run.folder.store, copy)
        return copy

    def put_back(self, run: ServedRun, backup: Any) -> None:
        shutil.rmtree(run.folder.store)
        shutil.copytree(backup, run.folder.store)


@dataclass
class OverwritingBackups(FolderBackups):
    """A copied folder whose files are written over the ones that are there."""

    def put_back(self, run: ServedRun, backup: Any) -> None:
        for file in filter(Path.is_file, backup.rglob("*")):
            (run.folder.store / file.relative_to(backup)).write_bytes(file.read_bytes())


_DUMP = """
local all = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  if redis.call('TTL', key) == -1 then
    all[#all + 1] = key
    all[#all + 1] = redis.call('DUMP', key)
  end
end
return all
"""


@dataclass
class RedisBackups:
    """The keys of the run, as an RDB has them: all of one moment, but what has expired by then."""

    url: str

    def make(self, run: ServedRun) -> Any:
        return redis_client(self.url).eval(_DUMP, 0, self._pattern(run))

    def put_back(self, run: ServedRun, backup: Any) -> None:
        client = redis_client(self.url)
        with client.pipeline(transaction=True) as pipeline:
            pipeline.eval("for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end", 0,
                          self._pattern(run))  # fmt: skip
            for key, data in zip(backup[::2], backup[1::2], strict=True):
                pipeline.restore(key, 0, data)
            pipeline.execute()

    def _pattern(self, run: ServedRun) -> str:
        return f"vcdl:{{{run.prepared.store_key}}}:*"


_TABLES = ("head", "chunk", "applied")


@dataclass
class MariadbBackups:
    """The rows of the run, as a dump in one transaction has them."""

    url: str

    def make(self, run: ServedRun) -> Any:
        with self._connected() as connection:
            cursor = connection.cursor()
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            rows = {}
            for table in _TABLES:
                cursor.execute(f"SELECT * FROM vcdl_{table} WHERE job = %s", [run.prepared.store_key])
                rows[table] = cursor.fetchall()
            return rows

    def put_back(self, run: ServedRun, backup: Any) -> None:
        with self._connected() as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT * FROM vcdl_head WHERE job = %s FOR UPDATE", [run.prepared.store_key])
            for table in _TABLES:
                cursor.execute(f"DELETE FROM vcdl_{table} WHERE job = %s", [run.prepared.store_key])
                for row in backup[table]:
                    cursor.execute(f"INSERT INTO vcdl_{table} VALUES ({', '.join(['%s'] * len(row))})", row)
            connection.commit()

    def _connected(self) -> Any:
        import MySQLdb

        socket = self.url.partition("socket=")[2]
        return MySQLdb.connect(unix_socket=socket, user="root", database="vcdl", charset="latin1", binary_prefix=True)
