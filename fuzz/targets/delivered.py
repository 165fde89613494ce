"""Files that a project delivers: the statement of newest weights to clients, a runtime to its operator."""

import io
import json
import random
import tarfile
from collections.abc import Sequence
from pathlib import Path

from fuzz.mutations import as_json, mutated, mutated_json
from fuzz.target import Target, hold
from vcdl.boinc.grid.weights_key import WeightsKey
from vcdl.boinc.runtime.archive import PYTHON, ArchiveManifest, RuntimeFile
from vcdl.client.runtime import MANIFEST, PACKAGES
from vcdl.errors import GridError, WorkunitError
from vcdl.wire.newest import Newest, read_signed


class NewestWeights(Target):
    """Statements of the newest weights: as the web server gives them, and signed ones with anything in them."""

    name = "newest_weights"
    refuses = (WorkunitError,)
    words = (b"null", b"[" * 3000, b"9" * 5000, b"\\ud800", b"file:///etc/passwd", b"\xff", b"-1")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._key = WeightsKey.generate()
        self._honest = Newest("j", "0123456789abcdef", 7, "http://h/download/0a/w", 1000, "0" * 64)

    def seeds(self) -> Sequence[bytes]:
        return [self._signed(self._honest.to_json())]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        if dice.random() < 0.7:
            statement = as_json(mutated_json(dice, json.loads(self._honest.to_json())))
            return self._signed(statement.decode(errors="replace"))
        return mutated(dice, data, others, self.words)

    def take(self, data: bytes) -> None:
        newest = read_signed(data, self._key.public)
        hold(newest.version >= 0 and newest.size_bytes >= 0, "a number below zero")
        hold(newest.url.startswith(("http://", "https://")), "no address of the web")
        hold(Newest(**json.loads(newest.to_json())) == newest, "it is read as another one")

    def _signed(self, statement: str) -> bytes:
        return self._key.sign(statement).encode()


class Runtimes(Target):
    """A runtime's archive, its manifest first."""

    name = "runtimes"
    refuses = (GridError,)
    words = (b"NaN", b"null", b"-1", b"[" * 3000, b"9" * 5000, b"\xff")

    def seeds(self) -> Sequence[bytes]:
        manifest = ArchiveManifest(
            platform="linux-x86_64",
            backend="jax",
            gpu=False,
            python="3.11.9",
            packages={"keras": "3.12.0"},
            folder="packages-0123",
            processor_needs=("avx",),
            glibc="2.28",
            python_bytes=100,
            packages_bytes=200,
        )
        return [_archive(manifest.to_json())]

    def mutate(self, dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(others[0])) as tar:
            manifest = tar.extractfile(MANIFEST)
            content = b"" if manifest is None else manifest.read()
        if dice.random() < 0.5:
            return _archive(as_json(mutated_json(dice, json.loads(content))))
        return mutated(dice, data, others, self.words)

    def take(self, data: bytes) -> None:
        path = self.folder / "runtime.tar"
        path.write_bytes(data)
        runtime = RuntimeFile.at(path)
        hold(runtime.manifest.unpacked_bytes >= 0, "a size below zero")
        hold(ArchiveManifest.from_json(runtime.manifest.to_json()) == runtime.manifest, "it is read as another one")
        hold(runtime.name.startswith("vcdl_runtime_"), "a name of another kind")


def _archive(manifest: bytes) -> bytes:
    room = io.BytesIO()
    with tarfile.open(fileobj=room, mode="w:") as tar:
        for name, content in ((MANIFEST, manifest), (PYTHON, b"python"), (PACKAGES, b"packages")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return room.getvalue()
