"""A stand-in for Google's storage, for `python -m`: files below a folder are the objects of its buckets.

It speaks what Google's library asks for when it reads: an object's facts, its bytes from a place on, and lists. It is a
process of its own, as that library holds Python's lock while it waits.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
_TIME = "2026-01-01T00:00:00.000Z"


class Storage(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = parse_qs(asked.query)
        bucket, _, name = asked.path.partition("/b/")[2].partition("/o")
        name = unquote(name.lstrip("/"))
        file = ROOT / bucket / name
        if not name:
            prefix = query.get("prefix", [""])[0]
            names = sorted(str(path.relative_to(ROOT / bucket)) for path in (ROOT / bucket).rglob("*.*"))
            self.answer(200, {"items": [self.facts(bucket, found) for found in names if found.startswith(prefix)]})
        elif not file.is_file():
            self.answer(404, {"error": {"code": 404, "message": "no such object"}})
        elif query.get("alt") == ["media"]:
            self.send(file.read_bytes())
        else:
            self.answer(200, self.facts(bucket, name))

    def facts(self, bucket: str, name: str) -> dict[str, Any]:
        size_bytes = (ROOT / bucket / name).stat().st_size
        return {"bucket": bucket, "name": name, "size": str(size_bytes), "generation": "1", "updated": _TIME}

    def send(self, content: bytes) -> None:
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if begin else 200)
        self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:])

    def answer(self, status: int, told: dict[str, Any]) -> None:
        content = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Storage)
    print(server.server_port, flush=True)
    server.serve_forever()
