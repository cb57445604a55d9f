"""Servers of files, written by others, in threads of the tests: SFTP (asyncssh), WebDAV (wsgidav) and FTP (pyftpdlib).

Each serves an empty folder, for all tests: use a folder of it in each.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

USER, PASSWORD = "tester", "testing"


@dataclass
class FileServer:
    """The url and options by which fsspec opens a folder."""

    url: str
    storage_options: dict[str, Any]
    close_connections: Callable[[], object] | None = None
    """Close all connections, as servers do with clients that are silent for long."""

    def new_folder(self) -> str:
        """Return the url of a folder that does not exist yet."""
        return f"{self.url}/{uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def sftp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileServer]:
    """asyncssh's server."""
    asyncssh = pytest.importorskip("asyncssh")
    folder = tmp_path_factory.mktemp("sftp")
    connections: list[Any] = []

    class Server(asyncssh.SSHServer):
        def connection_made(self, connection: Any) -> None:
            connections.append(connection)

        def begin_auth(self, username: str) -> bool:
            return True

        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return (username, password) == (USER, PASSWORD)

    def sftp(channel: Any) -> Any:
        return asyncssh.SFTPServer(channel, chroot=str(folder))

    async def listen() -> Any:
        key = asyncssh.generate_private_key("ssh-ed25519")
        return await asyncssh.listen("127.0.0.1", 0, server_factory=Server, server_host_keys=[key], sftp_factory=sftp)

    def abort() -> None:
        while connections:
            connections.pop().abort()

    async def close(server: Any) -> None:
        abort()
        await asyncio.sleep(0.1)  # so that their sockets are closed
        server.close()
        await server.wait_closed()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="sftp-server", daemon=True)
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(listen(), loop).result(30)
        options = {"port": server.get_port(), "username": USER, "password": PASSWORD}
        options |= {"allow_agent": False, "look_for_keys": False}
        yield FileServer("sftp://127.0.0.1", options, lambda: loop.call_soon_threadsafe(abort))
        asyncio.run_coroutine_threadsafe(close(server), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


@pytest.fixture(scope="session")
def webdav_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileServer]:
    """wsgidav, likewise."""
    pytest.importorskip("wsgidav")
    from cheroot.wsgi import Server
    from wsgidav.wsgidav_app import WsgiDAVApp

    config = {
        "provider_mapping": {"/": str(tmp_path_factory.mktemp("webdav"))},
        "simple_dc": {"user_mapping": {"*": {USER: {"password": PASSWORD}}}},
        "verbose": 0,
        "logging": {"enable": False},
    }
    server = Server(("127.0.0.1", 0), WsgiDAVApp(config), numthreads=10)
    server.prepare()
    thread = threading.Thread(target=server.serve, name="webdav-server", daemon=True)
    thread.start()
    try:
        options = {"base_url": f"http://127.0.0.1:{server.bind_addr[1]}", "auth": (USER, PASSWORD)}
        yield FileServer("webdav://", options)
    finally:
        server.stop()
        thread.join(30)


@pytest.fixture(scope="session")
def ftp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileServer]:
    """pyftpdlib, likewise."""
    with warnings.catch_warnings():  # of asyncore and asynchat
        warnings.simplefilter("ignore", DeprecationWarning)
        pytest.importorskip("pyftpdlib")
        from pyftpdlib.authorizers import DummyAuthorizer
        from pyftpdlib.handlers import FTPHandler
        from pyftpdlib.ioloop import IOLoop
        from pyftpdlib.servers import ThreadedFTPServer

    class Handler(FTPHandler):
        authorizer = DummyAuthorizer()

    logging.getLogger("pyftpdlib").setLevel(logging.ERROR)
    Handler.authorizer.add_user(USER, PASSWORD, str(tmp_path_factory.mktemp("ftp")), perm="elradfmwMT")
    # with a loop of its own: the end of one server would close the sockets of all that share one
    server = ThreadedFTPServer(("127.0.0.1", 0), Handler, ioloop=IOLoop())
    thread = threading.Thread(target=server.serve_forever, name="ftp-server", kwargs={"timeout": 0.1}, daemon=True)
    thread.start()
    try:
        host, port = server.address
        yield FileServer(f"ftp://{host}", {"port": port, "username": USER, "password": PASSWORD})
    finally:
        server.close_all()
        thread.join(30)
