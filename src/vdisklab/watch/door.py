"""Where the server listens, and who may ask it what."""

from __future__ import annotations

import errno
import hmac
import ipaddress
import secrets
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vdisklab.errors import HostError, PlanError
from vdisklab.units import whole_number
from vdisklab.value import Value, field

PORT = 8765
_METHODS = ("GET", "HEAD")
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Each response has them, unless it has its own."""


class Door(Value):
    """An address, and what a visitor must bring: on all but loopback addresses the token."""

    host: str
    port: int = PORT
    certificate: Path | None = None
    key: Path | None = None
    token: str | None = None
    names: frozenset[str] = field(default_factory=frozenset)

    @property
    def cookie(self) -> str:
        """The name of the token's cookie: a browser sends a host's cookies to all its ports."""
        return f"vdisklab-{self.port}"

    @property
    def address(self) -> str:
        """The page's address, with the token."""
        scheme = "http" if self.certificate is None else "https"
        any_address = ipaddress.ip_address(self.host).is_unspecified
        host = socket.gethostname() if any_address else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def knows(self, host: str | None) -> bool:
        """True for a Host header that names this machine.

        The page of an attacker whose DNS name is led to this address (DNS rebinding) sends that
        name; an address cannot be led elsewhere.
        """
        name = (host or "").lower().rstrip(".")
        name = name[1:].partition("]")[0] if name[:1] == "[" else name.partition(":")[0]
        if name in self.names:
            return True
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def admits(self, given: str | None) -> bool:
        """True for the token, or if none is needed."""
        if self.token is None:
            return True
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())


def make_door(listen: str, certificate: Path | None = None, key: Path | None = None) -> Door:
    """The door at `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`, with a new token if it needs one.

    Raises PlanError for any other text, and for a key without a certificate.
    """
    if key is not None and certificate is None:
        raise PlanError("--key needs --cert", hint="--cert CERT.pem --key KEY.pem")
    host, port = _parsed(listen)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
    except (OSError, UnicodeError) as error:
        raise PlanError(
            f"--listen {listen}: {host} is no address and no known name of a host",
            hint="for example --listen 127.0.0.1:8765, or --listen [::1]:8765",
        ) from error
    loopback = ipaddress.ip_address(found).is_loopback
    names = {"localhost", socket.gethostname().lower(), host.lower()}
    if not loopback:
        names.add(socket.getfqdn().lower())
    token = None if loopback else secrets.token_urlsafe(24)
    return Door(str(found), port, certificate, key, token, frozenset(names))


def _parsed(listen: str) -> tuple[str, int]:
    alone = whole_number(listen) is not None
    host, port = ("127.0.0.1", listen) if alone else (listen, "")
    if listen.startswith("["):
        host, _, rest = listen[1:].partition("]")
        port = rest.removeprefix(":")
    elif listen.count(":") == 1:
        host, _, port = listen.partition(":")
    number = whole_number(port) if port else PORT
    if not host or number is None or number > 65535:
        raise PlanError(
            f"--listen {listen!r} is not ADDRESS or ADDRESS:PORT",
            hint="for example --listen 127.0.0.1:8765, or --listen [::1]:8765",
        )
    return host, number


def opened(door: Door) -> socket.socket:
    """The listening socket. Raises HostError if the address or port cannot be taken."""
    family = socket.AF_INET6 if ":" in door.host else socket.AF_INET
    try:
        return socket.create_server((door.host, door.port), family=family)
    except OSError as error:
        matter, hint = {
            errno.EADDRINUSE: (
                f"port {door.port} of {door.host} is taken by another program",
                "perhaps a `vdisklab watch` already runs there; if not, try --listen "
                f"{door.host}:{door.port + 1}",
            ),
            errno.EADDRNOTAVAIL: (
                f"{door.host} is not an address of this host",
                "`ip -brief address` lists them; leave --listen out for this host alone",
            ),
            errno.EACCES: (f"only root may listen on port {door.port}", "use a port from 1024 on"),
        }.get(error.errno or 0, (f"cannot listen on {door.host}: {error.strerror}", "--listen"))
        raise HostError(matter, hint=hint) from error


def require_certificate(door: Door) -> None:
    """Raises HostError unless the certificate and its key can be read and belong together."""
    if door.certificate is None:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(door.certificate, door.key)
    except OSError as error:  # also an SSLError
        raise HostError(
            f"the certificate {door.certificate} cannot be used: {error.strerror or error}",
            hint="--cert and --key are PEM files that belong together",
        ) from error


class Guard:
    """Refuses what the door does not let in, and gives each response its headers."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, guarded)

    def _refusal(self, request: Request) -> Response | None:
        door, headers = self._door, Headers(scope=request.scope)
        if not door.knows(headers.get("host")):
            return _plain(421, "this server has another name: use its address")
        if request.method not in _METHODS:
            return _plain(405, "nothing can be changed here", {"Allow": ", ".join(_METHODS)})
        if door.token is None:
            return None
        queried = parse_qsl(request.url.query, keep_blank_values=True)
        given = dict(queried).get("token")
        if given is not None and door.admits(given):
            rest = urlencode([pair for pair in queried if pair[0] != "token"])
            # One slash: a path that begins with two would lead to another server.
            path = "/" + request.scope["path"].lstrip("/\\")
            answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(
                door.cookie, given, httponly=True, samesite="strict",
                secure=door.certificate is not None,
            )  # fmt: skip
            return answer
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if door.admits(request.cookies.get(door.cookie)) or door.admits(bearer):
            return None
        return _plain(401, "open the address that `vdisklab watch` has printed, with its token")


def _plain(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{sentence}\n", status, headers)
