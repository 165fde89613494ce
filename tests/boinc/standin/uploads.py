"""The file upload handler: how much of a file is there already, and the rest of it, with a certificate that the
server signed.
"""

import re
from io import BufferedIOBase

from tests.boinc.standin.project import StandinProject

_HEADER_BYTES = 64 * 1024
_BLOCK_BYTES = 256 * 1024


def answer(project: StandinProject, body: BufferedIOBase, size_bytes: int) -> str:
    """Read a request of `size_bytes` and return the reply."""
    header = b""
    while (
        len(header) < min(size_bytes, _HEADER_BYTES) and b"<data>\n" not in header and b"</get_file_size>" not in header
    ):
        line = body.readline(size_bytes - len(header))
        if not line:
            break
        header += line
    rest_bytes = size_bytes - len(header)
    text = header.decode("utf-8", "replace")
    asked = _value(text, "get_file_size")
    if asked:
        body.read(rest_bytes)
        path = project.config.upload_path(asked)
        return _reply(0, f"<file_size>{path.stat().st_size if path.exists() else 0}</file_size>")
    return _receive(project, body, text, rest_bytes)


def _receive(project: StandinProject, body: BufferedIOBase, text: str, rest_bytes: int) -> str:
    name, config = _value(text, "name"), project.config
    size_bytes, offset_bytes = float(_value(text, "nbytes") or -1), int(float(_value(text, "offset") or 0))
    refusal = ""
    if not config.flag("ignore_upload_certificates"):
        most_bytes = float(_value(text, "max_nbytes") or -1)
        certificate = f"<name>{name}</name><max_nbytes>{most_bytes:.0f}</max_nbytes>"
        if not project.upload_key.signed(certificate.encode(), _value(text, "xml_signature")):
            refusal = "invalid signature"
        elif size_bytes > most_bytes:
            refusal = f"file size ({size_bytes:.0f}) exceeds limit ({most_bytes:.0f})"
    if not re.fullmatch(r"[\w.+-]+", name) or ".." in name:
        refusal = f"invalid filename: {name}"
    if size_bytes < 0 or rest_bytes != size_bytes - offset_bytes:
        refusal = "nbytes missing, or not the size of the data"
    if refusal:
        body.read(rest_bytes)
        return _reply(-1, f"<message>{refusal}</message>")
    path = config.upload_path(name)
    path.parent.mkdir(exist_ok=True)
    with path.open("r+b" if path.exists() else "wb") as file:
        file.seek(offset_bytes)
        while rest_bytes > 0:
            block = body.read(min(rest_bytes, _BLOCK_BYTES))
            if not block:
                return _reply(1, "<message>EOF on socket read</message>")
            file.write(block)
            rest_bytes -= len(block)
    return _reply(0, "")


def _value(text: str, tag: str) -> str:
    found = re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return found[1].strip() if found else ""


def _reply(status: int, text: str) -> str:
    return f"<data_server_reply>\n    <status>{status}</status>\n    {text}\n</data_server_reply>\n"
