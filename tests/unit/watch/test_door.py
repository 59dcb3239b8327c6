from __future__ import annotations

import socket
from pathlib import Path

import pytest
from starlette.applications import Starlette

from tests.unit.watch.visitor import ask
from vdisklab.errors import HostError, PlanError
from vdisklab.results.store import open_store
from vdisklab.watch.app import make_app
from vdisklab.watch.door import Door, make_door, opened, require_certificate
from vdisklab.watch.verb import naming


@pytest.fixture
def db(tmp_path: Path) -> str:
    file = tmp_path / "results.sqlite"
    with open_store(str(file)):
        return str(file)


@pytest.fixture
def app(db: str) -> Starlette:
    return make_app(db, make_door("127.0.0.1"), naming(None))


@pytest.mark.parametrize(
    ("listen", "host", "port"),
    [
        ("127.0.0.1", "127.0.0.1", 8765),
        ("127.0.0.2:80", "127.0.0.2", 80),
        ("[::1]:9000", "::1", 9000),
        ("::1", "::1", 8765),
        ("localhost:1", "127.0.0.1", 1),
    ],
)
def test_this_host_alone_needs_no_token(listen: str, host: str, port: int) -> None:
    door = make_door(listen)
    assert (door.host in (host, "::1"), door.port, door.token) == (True, port, None)


@pytest.mark.parametrize("listen", ["", ":80", "127.0.0.1:x", "127.0.0.1:99999", "no such host"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(PlanError, match="--listen"):
        make_door(listen)


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(HostError, match=f"port {port} of 127.0.0.1 is taken") as error:
            opened(make_door(f"127.0.0.1:{port}"))
    assert "--listen" in str(error.value.hint)


def test_an_address_of_another_host_is_named() -> None:
    with pytest.raises(HostError, match=r"192\.0\.2\.7 is not an address of this host"):
        opened(make_door("192.0.2.7"))


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing")
    with pytest.raises(HostError, match=r"cert\.pem cannot be used"):
        require_certificate(make_door("127.0.0.1", tmp_path / "cert.pem"))
    with pytest.raises(PlanError, match="--key needs --cert"):
        make_door("127.0.0.1", None, tmp_path / "key.pem")


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "[::1]:8765", "10.0.0.1"])
def test_an_address_cannot_be_rebound(app: Starlette, host: str) -> None:
    assert ask(app, host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8765", "", None, "["])
def test_another_name_is_refused(app: Starlette, host: str | None) -> None:
    assert ask(app, host=host).status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUX"])
def test_nothing_but_reading_is_allowed(app: Starlette, method: str) -> None:
    answer = ask(app, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_every_answer_is_strict(app: Starlette) -> None:
    for target in ("/", "/nothing"):
        headers = ask(app, target).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


class TestToken:
    door = Door("192.0.2.7", 8765, Path("cert.pem"), None, "let-me-in")

    @pytest.fixture
    def guarded(self, db: str) -> Starlette:
        return make_app(db, self.door, naming(None))

    def test_another_address_gets_one(self) -> None:
        first, second = (make_door("192.0.2.7").token for _ in range(2))
        assert first
        assert first != second
        assert first in make_door("192.0.2.7").address or len(first) >= 32

    def test_without_it_nothing_is_said(self, guarded: Starlette) -> None:
        for target in ("/", "/nothing", "/?token=", "/?token=let-me-i", "/?token=%ff"):
            assert ask(guarded, target).status == 401

    def test_it_moves_into_a_cookie_that_no_script_sees(self, guarded: Starlette) -> None:
        moved = ask(guarded, "//evil.example/?a=1&token=let-me-in")
        assert (moved.status, moved.headers["location"]) == (303, "/evil.example/?a=1")
        cookie = moved.headers["set-cookie"]
        assert {"HttpOnly", "Secure", "SameSite=strict"} <= set(cookie.split("; "))
        pair = cookie.partition(";")[0]
        assert ask(guarded, headers={"cookie": pair}).status == 200

    def test_a_program_sends_it_as_a_bearer(self, guarded: Starlette) -> None:
        assert ask(guarded, headers={"authorization": "Bearer let-me-in"}).status == 200
        assert ask(guarded, headers={"authorization": "Bearer no"}).status == 401
