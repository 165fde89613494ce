"""A job's own code: Python files that are sent inside model.json and imported from memory, never written to disk.

In model.json: `{"own_code": {"sha256": …, "files": {"vae.py": TEXT}}, "model": …}`; it only runs in processes that
called `permit()`.
"""

import hashlib
import importlib
import importlib.util
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from vcdl.client.unneeded import unneeded_shown
from vcdl.errors import ModelError, VcdlError, one_line

MOST_BYTES, MOST_FILES = 1_000_000, 200
_KEY = "own_code"
_FILE = re.compile(r"(?:[A-Za-z_]\w*/)*[A-Za-z_]\w*\.py", re.ASCII)
_SHOWN = "own_code/"
"""The text before a file's name in a traceback."""
REFUSED = (
    "the job has its own code, and this process may not run it: only workers of `vcdl run`, and pool workers that "
    "were started by `vcdl worker --allow-code`, may"
)
_AGAIN = "fetch the workunit's files again"
_is_permitted = False
_loaded: "_Importer | None" = None


def permit() -> None:
    """Permit this process to run the code that jobs bring, from now on. It cannot be revoked."""
    global _is_permitted
    _is_permitted = True


def is_loaded() -> bool:
    """Return whether this process has imported a job's own code."""
    return _loaded is not None


@dataclass(frozen=True)
class OwnCode:
    """The Python files that a job brings with its model."""

    files: Mapping[str, str]
    """Path, with `/` between folders → text of the file."""

    @property
    def sha256(self) -> str:
        """A digest of paths and texts, equal for equal files in any folder."""
        return hashlib.sha256(json.dumps(self.files, sort_keys=True).encode()).hexdigest()

    @property
    def modules(self) -> dict[str, str]:
        """Paths of the files, keyed by the module's name."""
        names = ((path, path.removesuffix(".py").removesuffix("/__init__")) for path in self.files)
        return {name.replace("/", "."): path for path, name in names}

    def brings(self, module: object) -> bool:
        """Return whether one of these files is the module of this name."""
        return module in self.modules

    def with_model(self, model_json: str) -> str:
        """Return a model's JSON with this code in it."""
        content = {_KEY: {"sha256": self.sha256, "files": self.files}, "model": json.loads(model_json)}
        return json.dumps(content, sort_keys=True)

    def objects(self, parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Load this code, and return its classes and functions that occur in a model, keyed by Keras' names for them.

        Args:
            parts: The objects in the model's configuration.

        Raises:
            ModelError: A part does not exist, or the code fails.
        """
        self.load()
        found = {}
        for one in parts:
            if self.brings(one.get("module")):
                name = one["config"] if one["class_name"] == "function" else one["class_name"]
                found[one.get("registered_name") or name] = found[name] = part(f"{one['module']}:{name}")
        return found

    def load(self) -> None:
        """Make this code's modules importable in this process, and remove those of another job from it.

        Raises:
            ModelError: This process may not run code of jobs.
        """
        global _loaded
        if not _is_permitted:
            raise ModelError(REFUSED)
        # Modules keep their state between the workunits of one job, because a class must stay the same object for
        # Keras.
        if _loaded is not None and _loaded.code.files == self.files:
            return
        if _loaded is not None:
            sys.meta_path.remove(_loaded)
            # Another job may have a module of the same name, and an import would find the old one.
            for name in [name for name, module in sys.modules.items() if _is_of(module, _loaded)]:
                del sys.modules[name]
        _loaded = _Importer(self)
        # Put it first, so that a job's `utils.py` wins over an installed package of that name.
        sys.meta_path.insert(0, _loaded)


def split_code(model_json: str) -> tuple[str, OwnCode | None]:
    """Split a model's JSON into the JSON without its code, and the code.

    Raises:
        ModelError: The text is not valid.
    """
    if f'"{_KEY}"' not in model_json:
        return model_json, None
    try:
        raw = json.loads(model_json)
        if not isinstance(raw, dict) or _KEY not in raw:
            return model_json, None
        code = OwnCode({str(path): str(text) for path, text in raw[_KEY]["files"].items()})
        named, model = raw[_KEY]["sha256"], json.dumps(raw["model"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"the model's JSON is damaged ({one_line(error)}): {_AGAIN}") from error
    # Allow only names of modules: no path may lead out of the folder, although nothing is ever written.
    if named != code.sha256 or not all(map(_FILE.fullmatch, code.files)):
        raise ModelError(f"the job's own code does not match its checksum: {_AGAIN}")
    return model, code


def part(reference: str) -> Any:
    """Return the class or function `module:name` of the loaded code.

    Raises:
        ModelError: It does not exist, or importing it fails.
    """
    module, _, name = reference.partition(":")
    if _loaded is None or not _loaded.code.brings(module):
        raise ModelError(
            f"{reference} is not in the files that the job sends: set model > code to the folder of {module}.py"
        )
    with unneeded_shown():  # it may need packages that Keras does not
        return run_guarded(reference, lambda: getattr(importlib.import_module(module), name))


def run_guarded(what: str, act: Callable[[], Any]) -> Any:
    """Call `act` and return its result; an error of the job's own code becomes a ModelError with file and line."""
    try:
        return act()
    except VcdlError:
        raise
    except (Exception, SystemExit) as error:  # code of others may raise anything
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(_SHOWN)]
        where = f"{frames[-1].filename.removeprefix(_SHOWN)}:{frames[-1].lineno}: " if frames else ""
        if isinstance(error, SyntaxError) and str(error.filename).startswith(_SHOWN):
            where = f"{str(error.filename).removeprefix(_SHOWN)}:{error.lineno}: "
        raise ModelError(
            f"{where}{what} of the job's own code failed: {type(error).__name__}: {one_line(error)}"
        ) from error


class _Importer(MetaPathFinder, InspectLoader):
    """Finds and loads the modules of one job's code."""

    def __init__(self, code: OwnCode) -> None:
        self.code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if self.code.brings(fullname):
            return importlib.util.spec_from_loader(fullname, self, origin=self._display_name(fullname))
        if any(name.startswith(f"{fullname}.") for name in self.code.modules):  # a folder without __init__.py
            return importlib.util.spec_from_loader(fullname, self, is_package=True)
        return None

    def is_package(self, fullname: str) -> bool:
        return self.code.modules.get(fullname, "/__init__.py").endswith("__init__.py")

    def get_source(self, fullname: str) -> str:
        return self.code.files[self.code.modules[fullname]] if self.code.brings(fullname) else ""

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_source(fullname), self._display_name(fullname), "exec", dont_inherit=True)

    def _display_name(self, fullname: str) -> str:
        return f"{_SHOWN}{self.code.modules.get(fullname, fullname)}"


def _is_of(module: Any, importer: _Importer) -> bool:
    return getattr(getattr(module, "__spec__", None), "loader", None) is importer
