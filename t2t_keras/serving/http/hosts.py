"""Answers only those who ask for this server by a name of its own: pages of other sites must not use it."""

import ipaddress
import json
import urllib.parse
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

ANY_HOST = "*"


class HostCheck:
    """Refuses requests for foreign hosts, and those that pages of other sites make a browser send.

    A site can give its own name the address of this server and so read answers (DNS rebinding); such a request has
    the site's name for its host. Addresses are no names, so they are always answered, as is "localhost". Any site can
    make a browser post to an address without reading the answer; such a request has the site for its origin.

    Args:
        app: what answers the others.
        host: what the server listens at.
        allowed_hosts: further names, without ports, that are answered and whose pages may use it; "*" is every one.
    """

    def __init__(self, app: ASGIApp, host: str, allowed_hosts: Collection[str]) -> None:
        self._app = app
        self._host = host.lower()
        self._allowed = frozenset(name.lower() for name in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if message := self._refusal(Headers(scope=scope)):
            content = json.dumps({"error": message}, ensure_ascii=False).encode("utf-8", "replace")
            await Response(content, 403, {"Connection": "close"}, "application/json")(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> str:
        """Why a request is refused; "" if it is not."""
        # Browsers always name a host; what does not is no browser.
        host, origin = headers.get("host", ""), headers.get("origin")
        if ANY_HOST in self._allowed:
            return ""
        if host and not self._is_known(_name(host)):
            return f"the host {host!r} is not one that this server answers for; see --allowed_hosts"
        if origin is not None:
            place = origin.partition("://")[2].lower()
            if place != host.lower() and _name(place) not in self._allowed:
                return f"pages of {origin!r} may not use this server; see --allowed_hosts"
        return ""

    def _is_known(self, name: str) -> bool:
        return name in ("localhost", self._host) or name in self._allowed or _is_address(name)


def _name(place: str) -> str:
    """The name or address in "host:port", in lower case; "" where there is none."""
    try:
        return urllib.parse.urlsplit(f"//{place}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
