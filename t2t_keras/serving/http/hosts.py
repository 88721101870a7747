"""Protects the server from requests that web pages of other sites make a browser send."""

import functools
import ipaddress
import json
import urllib.parse
from collections.abc import Collection

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from t2t_keras.serving.refusals import Reason, Refusals, address

ANY_HOST = "*"


class HostCheck:
    """Middleware that answers 403 to requests with a different host or origin.

    A site can point its own name at this server's address to read responses (DNS rebinding). Such requests have the
    site's name in the header `Host`. IP addresses and "localhost" cannot be abused this way and always pass. Any site
    can also make a browser post to an address, without being able to read the response (cross-site request forgery).
    Such requests have the site's name in the header `Origin`.

    Args:
        app: the application behind the check.
        host: address that the server listens on.
        allowed_hosts: further names, without ports, accepted as host and as origin; "*" accepts all.
        refusals: counts refused requests.
    """

    def __init__(self, app: ASGIApp, host: str, allowed_hosts: Collection[str], refusals: Refusals) -> None:
        self._app = app
        self._host = host.lower()
        self._allowed = frozenset(name.lower() for name in allowed_hosts)
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if message := self._refusal(scope):
            self._refusals.add("rest", Reason.HOST, address(scope.get("client")))
            content = json.dumps({"error": message}, ensure_ascii=False).encode("utf-8", "replace")
            await Response(content, 403, {"Connection": "close"}, "application/json")(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str:
        """Returns the reason to refuse a request, or "" if there is none."""
        # Browsers always name a host, so a request without one does not come from a browser.
        host, origin = header(scope, b"host") or "", header(scope, b"origin")
        if ANY_HOST in self._allowed:
            return ""
        if host and not self._is_known(_name(host)):
            return f"the host {host!r} is not an allowed host of this server; see --allowed_hosts"
        if origin is not None:
            authority = origin.partition("://")[2].lower()
            if authority != host.lower() and _name(authority) not in self._allowed:
                return f"pages of {origin!r} may not use this server; see --allowed_hosts"
        return ""

    def _is_known(self, name: str) -> bool:
        return name in ("localhost", self._host) or name in self._allowed or _is_address(name)


def header(scope: Scope, name: bytes) -> str | None:
    """Returns the first value of a request's header, or None; much faster than Starlette's `Headers`."""
    for other, value in scope["headers"]:
        if other == name:
            return value.decode("latin-1")
    return None


@functools.lru_cache
def _name(authority: str) -> str:
    """Returns the name or address in "host:port" in lower case, or "" if there is none."""
    try:
        return urllib.parse.urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


@functools.lru_cache
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
