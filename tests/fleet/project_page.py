"""The pages of a BOINC project that are asked before a launch, and one account with a strong and a weak key."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

STRONG = "0123456789abcdef0123456789abcdef"
WEAK = "7_fedcba9876543210fedcba9876543210"


@contextmanager
def project_page() -> Iterator[str]:
    """The project's URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            at = urlsplit(self.path)
            asked = parse_qs(at.query)
            if at.path == "/show_user.php":
                text = "<user/>" if asked["userid"] == ["7"] else "<error><error_num>-136</error_num></error>"
            elif at.path == "/am_get_info.php":
                known = asked["account_key"] == [STRONG]
                text = f"<weak_auth>{WEAK}</weak_auth>" if known else "<error><error_num>-136</error_num></error>"
            else:
                text = '<html><link rel="boinc_scheduler" href="http://example.org/cgi"></html>'
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()
