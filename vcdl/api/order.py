"""The order that a program sends its child process: which run to begin, resume or simulate."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

OrderAction = Literal["run", "resume", "simulate"]


@dataclass(frozen=True)
class ChildOrder:
    """What a child process shall do with which run; sent as one line of JSON over its standard input."""

    action: OrderAction
    folder: str
    """The run's folder."""
    job_file: str = ""
    settings: tuple[str, ...] = ()
    """Keys of the job file that are replaced: `stop.epochs=2`."""
    clients_file: str = ""
    client_settings: tuple[str, ...] = ()
    """Keys of the clients file that are replaced."""

    def to_line(self) -> bytes:
        """Return the order as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Self:
        """Read an order from a line that `to_line` returned."""
        fields: dict[str, Any] = json.loads(line)
        # JSON turns tuples into lists; convert them back, so that an order equals the one that was sent.
        plain: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
        return cls(**plain)
