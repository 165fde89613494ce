"""The notebooks of examples/: they run as they are, and what they show is small and of no machine.

`jupyter execute --inplace examples/python_api.ipynb` renews what one shows; remove what goes to stderr.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.places import EXAMPLES

NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
LARGEST_BYTES = 40_000


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def text_of(outputs: list[dict[str, Any]]) -> str:
    """What a cell has printed and shown, as text."""
    shown = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)
    return "".join("".join(text) for text in shown)


def test_there_are_some() -> None:
    assert [path.name for path in NOTEBOOKS] == ["python_api.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_its_cells_are_python_and_what_they_show_is_small_and_of_no_machine(path: Path) -> None:
    assert path.stat().st_size < LARGEST_BYTES
    for cell in cells(path):
        compile("".join(cell["source"]), path.name, "exec")
        assert all(output.get("name") != "stderr" for output in cell["outputs"])
    shown = "".join(text_of(cell["outputs"]) for cell in cells(path))
    assert "epoch 8/8: accuracy 0.9" in shown
    assert re.findall(r"(?:^|[\s'\"])/\w+|file:|error", shown) == []


@pytest.mark.nightly
@pytest.mark.keras
@pytest.mark.process
@pytest.mark.server
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs_and_shows_the_same(path: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    drawn: list[str] = []

    class Client(NotebookClient):  # type: ignore[misc]
        """A client that sees how often the live display is drawn anew."""

        def process_message(self, message: Any, cell: Any, cell_index: int) -> Any:
            if message["header"]["msg_type"] in ("display_data", "update_display_data"):
                drawn.append(message["content"]["data"]["text/plain"])
            return super().process_message(message, cell, cell_index)

    Client(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    executed = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, kept in zip(executed, cells(path), strict=True):
        assert len(text_of(cell.outputs)) > 0 or not kept["outputs"]
    assert any(re.search(r"subtasks +\d+ running, \d+ waiting", text) for text in drawn)
    assert "all epochs are done" in text_of(executed[1].outputs)
    assert drawn[-1].count("epoch ") == 8
