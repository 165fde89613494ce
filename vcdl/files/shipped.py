"""Files that are not Python and come with VCDL: what is installed into a BOINC project, templates, launchers,
examples.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(name: str) -> Path:
    """The folder `boinc_project`, `templates`, `wrappers` or `examples`: at the root of a checkout, inside the
    package when it was installed.
    """
    packed = _PACKAGE / "_shipped" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name
