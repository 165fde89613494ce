"""Find files other than Python that come with VCDL: for BOINC projects, templates, launchers, examples."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder(name: str) -> Path:
    """Return a folder that ships with VCDL: `boinc_project`, `templates`, `wrappers` or `examples`.

    Args:
        name: The folder's name; the folder is in the checkout, or inside the installed package.
    """
    packed = _PACKAGE / "_shipped" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name
