"""Names of an experiment's results."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ResultFiles:
    """Where they lie."""

    folder: Path
    name: str

    @property
    def report(self) -> Path:
        return self.folder / f"{self.name}.md"

    @property
    def data(self) -> Path:
        return self.folder / f"{self.name}.csv"

    @property
    def figures(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def picture(self) -> Path:
        return self.folder / f"{self.name}.png"
