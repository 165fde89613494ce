"""The project's URL and account key, checked before the first launch: instances that cannot attach cost for nothing."""

import re
import urllib.request
from http.client import HTTPException
from urllib.parse import urlencode

from vcdl.errors import FleetError

_TIMEOUT_S = 20.0
_MAX_BYTES = 1_000_000


def weak_key(url: str, key: str) -> str:
    """The weak key of the account, which instances get: it fetches and reports work, and can do nothing else.

    Raises FleetError, which never shows the key, when the URL is no project's or the project does not know the account.
    """
    if "scheduler" not in _page(url):
        raise FleetError(f"what answers at {url} is no BOINC project: correct `project > url` in the fleet file")
    user, _, rest = key.partition("_")
    if rest:  # only the scheduler can check the rest of a weak key, and it would make a host of us
        answer = _page(f"{url}show_user.php?{urlencode({'userid': user, 'format': 'xml'})}")
        if "<error" in answer:
            raise FleetError(f"{url} has no account {user}, as the weak key says: take it from Account keys there")
        return key
    answer = _page(f"{url}am_get_info.php?{urlencode({'account_key': key})}")
    if (found := re.search("<weak_auth>([0-9]+_[0-9a-f]+)</weak_auth>", answer)) is None:
        raise FleetError(f"{url} does not know the account key: take it from the project's web page, Account keys")
    return found[1]


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as reply:
            text: str = reply.read(_MAX_BYTES).decode("utf-8", "replace")
            return text
    except (OSError, HTTPException, ValueError) as error:
        shown = url.partition("?")[0]
        raise FleetError(f"{shown} cannot be read, so no instance could work ({error}): mend it first") from None
