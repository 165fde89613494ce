"""Find parts by their entry points: VCDL's own, and those of other packages.

    [project.entry-points."vcdl.rules"]
    median = "my_package.median:Median"

Names come from the metadata of installed packages: nothing is imported before a part is used. Code that runs on
volunteers cannot be added: codecs, clients and the checks of both (docs/plugins.md).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from vcdl.errors import PluginError, VcdlError, one_line

if TYPE_CHECKING:  # not at run time: `vcdl --help` must not search installed packages
    from importlib.metadata import EntryPoint

_OURS = "vcdl"
T = TypeVar("T")


def _anything(_name: str, _found: object) -> str | None:
    return None


@dataclass(frozen=True, eq=False)
class Parts(Mapping[str, T], Generic[T]):
    """A mapping from names to parts of one kind, VCDL's own first; a part is imported when it is looked up.

    A look-up raises KeyError for an unknown name, and PluginError for a part that fails to import, is defined twice, or
    takes one of our names.
    """

    kind: str
    """The noun for such a part, for messages: `rule`."""
    wrong: Callable[[str, object], str | None] = _anything
    """Returns why a part with this name is invalid, as the end of a message, or None if it is valid."""

    @property
    def group(self) -> str:
        """The group of entry points, such as `vcdl.rules`."""
        return f"vcdl.{self.kind}s"

    @cached_property
    def _points(self) -> "Mapping[str, list[EntryPoint]]":
        """Name → its entry points in all installed packages, VCDL's own first."""
        from importlib.metadata import entry_points

        found: dict[str, list[EntryPoint]] = {}
        # Ours first, so that `points[0]` is ours even if another package uses the same name.
        for point in sorted(entry_points(group=self.group), key=lambda point: not _is_ours(point)):
            found.setdefault(point.name, []).append(point)
        # A checkout whose metadata is older than its code finds no parts at all, and "unknown rule" would mislead.
        if not any(_is_ours(points[0]) for points in found.values()):
            raise PluginError(
                f"the {self.kind}s of vcdl are not found: its package is older than its code, or not installed; "
                "install it again (`pip install --editable .` in a checkout)"
            )
        return found

    @cached_property
    def _loaded(self) -> dict[str, T]:
        return {}

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._points

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)

    def package(self, name: str) -> str | None:
        """Return the package that provides a part, with its version, or None for a part of VCDL itself."""
        point = self._points[name][0]
        return None if _is_ours(point) else _package(point)

    @property
    def how_to_add(self) -> str:
        """A text for messages about an unknown name: how to install a part of another package."""
        return f"a {self.kind} of another package: `pip install` that package next to vcdl"

    def _load(self, name: str) -> T:
        """Import and check a part. Raises PluginError if it is invalid, or KeyError if there is none."""
        points = self._points[name]
        # Checked only when the name is used: a broken package must not stop jobs that do not need it (decision 061).
        if len(points) > 1:
            raise PluginError(_name_conflict(self.kind, name, points))
        (point,) = points
        try:
            found: T = point.load()
        except VcdlError:  # such as a client library that is not installed, with advice
            raise
        except Exception as error:  # whatever another's module does when it is imported
            raise PluginError(
                f"the {self.kind} {name} of {_package(point)} cannot be imported ({type(error).__name__}: "
                f"{one_line(error)}): fix or uninstall that package"
            ) from error
        if (wrong := self.wrong(name, found)) is not None:
            raise PluginError(f"the {self.kind} {name} of {_package(point)}, {point.value}, {wrong}")
        return found


def _is_ours(point: "EntryPoint") -> bool:
    return point.dist is not None and point.dist.name == _OURS


def _package(point: "EntryPoint") -> str:
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _name_conflict(kind: str, name: str, points: "list[EntryPoint]") -> str:
    first, *others = points
    packages = " and ".join(_package(point) for point in others)
    if _is_ours(first):
        return f"{packages} has a {kind} {name}, which is the name of one of ours: uninstall it, or have it renamed"
    return f"{_package(first)} and {packages} both have a {kind} {name}: uninstall all but one"
