"""The pages of a BOINC project that are asked before a launch, and one account with a strong and a weak key."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from tests.http_server import Quiet, served_by

STRONG = "0123456789abcdef0123456789abcdef"
WEAK = "7_fedcba9876543210fedcba9876543210"


@contextmanager
def project_page() -> Iterator[str]:
    """The project's URL."""

    class Handler(Quiet, BaseHTTPRequestHandler):
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

    with served_by(Handler) as url:
        yield f"{url}/"
