"""Requests to servers of files, which have folders, and neither versions nor conditions: SFTP, WebDAV, FTP.

One client for all threads of a process: where it takes one request at a time, `one_at_a_time` is its lock.
"""

from __future__ import annotations

import contextlib
import ftplib
import io
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import quote

from chunkmill.stores.fsspec_services import ABSENT, Service
from chunkmill.stores.partial_files import partial_name

__all__ = ["FtpService", "RenamingService", "SftpService", "WebdavService"]


def _lock_of(filesystem: Any) -> threading.RLock:
    """Return the lock of a client, which stores of several urls share: fsspec makes one for each host."""
    lock: threading.RLock = vars(filesystem).setdefault("_chunkmill_lock", threading.RLock())
    return lock


class RenamingService(Service):
    """A filesystem whose files are replaced by renaming another one: written in place, they are seen half written."""

    async def put(self, path: str, value: bytes) -> bool:
        """Store a value: a hidden file in the same directory, then a rename over the path."""
        directory, _, name = path.rpartition("/")
        partial = f"{directory}/{partial_name(name)}"
        try:
            await super().put(partial, value)
            await self._run("mv", partial, path)
        except BaseException:
            with contextlib.suppress(Exception):
                await self._run("rm_file", partial)
            raise
        return True


class SftpService(RenamingService):
    """SFTP: paramiko's client waits for ever where two threads ask at once."""

    def __init__(self, filesystem: Any) -> None:
        super().__init__(filesystem)
        if not self.is_async:
            self.one_at_a_time = _lock_of(filesystem)

    async def _run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super()._run(name, *args, **kwargs)
        except (EOFError, OSError) as error:
            if self._is_connected_again():
                return await super()._run(name, *args, **kwargs)
            if isinstance(error, ABSENT) or name != "cat_file" or not self.fs.isdir(args[0]):
                raise
            raise IsADirectoryError(*args) from error  # servers say "Failure", or "Is a directory"

    def entries(self, path: str) -> list[dict[str, Any]]:
        """Return what the filesystem tells of each file and folder directly below a path."""
        try:
            return super().entries(path)
        except (EOFError, OSError):
            if not self._is_connected_again():
                raise
            return super().entries(path)

    def _is_connected_again(self) -> bool:
        """Connect again where the server has closed the connection; return whether it had."""
        transport = self.fs.client.get_transport() if hasattr(self.fs, "client") else None
        is_lost = transport is not None and not transport.is_active()
        if is_lost:
            self.fs._connect()  # noqa: SLF001
        return is_lost


class WebdavService(Service):
    """WebDAV, through webdav4, which does not quote what is special in a url.

    Values are replaced in place: servers delete the target of a move first, so that there would be none for a moment.
    """

    def __init__(self, filesystem: Any) -> None:
        super().__init__(filesystem)
        client = filesystem.client
        join = type(client).join_url

        def quoted(path: str, add_trailing_slash: bool = False) -> Any:
            return join(client, quote(path), add_trailing_slash)

        vars(client)["join_url"] = quoted


_UNKNOWN = ("500", "502", "504")  # answers to commands that an FTP server does not have


class FtpService(RenamingService):
    """FTP: one connection, on which a request follows another.

    fsspec takes whatever fails for an absent file, which would be read as fill values: a file is absent here where the
    server says so. A connection that broke is made once more. Where the server renames over no file, values are written
    in place.
    """

    def __init__(self, filesystem: Any) -> None:
        super().__init__(filesystem)
        self.one_at_a_time = _lock_of(filesystem)
        self._is_out_of_step = False  # with the answers of the server, after an error amid a request
        filesystem.ls = self._ls  # which the filesystem's own methods call

    async def _run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._asked(getattr(self, f"_{name}"), *args, **kwargs)

    def _asked(self, request: Callable[..., Any], path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._once(request, path, *args, **kwargs)
        except ftplib.error_perm as error:
            if str(error).startswith("550"):
                raise FileNotFoundError(path) from error
            raise
        except (ftplib.Error, EOFError, OSError):
            return self._once(request, path, *args, **kwargs)

    def _once(self, request: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._is_out_of_step:
            self.fs._connect()  # noqa: SLF001
            if self.fs.tls is True:
                self.fs.ftp.prot_p()
        self._is_out_of_step = True
        try:
            result = request(*args, **kwargs)
        except (ftplib.error_perm, FileNotFoundError):  # whole answers
            self._is_out_of_step = False
            raise
        self._is_out_of_step = False
        return result

    async def put(self, path: str, value: bytes) -> bool:
        """Store a value, renamed where the server can."""
        try:
            return await super().put(path, value)
        except ftplib.error_perm:
            return await Service.put(self, path, value)

    def _cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        ftp, received = self.fs.ftp, io.BytesIO()
        ftp.voidcmd("TYPE I")
        with ftp.transfercmd(f"RETR {path}", rest=start or None) as connection:
            while end is None or received.tell() < end - start:
                if not (data := connection.recv(1 << 16)):
                    break
                received.write(data)
        is_cut = end is not None and received.tell() >= end - start
        try:
            ftp.voidresp()
        except (ftplib.error_temp, ftplib.error_perm):
            if not is_cut:  # else the server says that we have closed the connection
                raise
        return received.getvalue()[: None if end is None else end - start]

    def _pipe_file(self, path: str, value: bytes) -> None:
        self.fs.ftp.storbinary(f"STOR {path}", io.BytesIO(value))

    def _mv(self, old: str, new: str) -> None:
        self.fs.ftp.rename(old, new)

    def _rm_file(self, path: str) -> None:
        self.fs.ftp.delete(path)

    def _makedirs(self, path: str, exist_ok: bool = True) -> None:  # noqa: ARG002 - as in fsspec
        parts = path.strip("/").split("/")
        for i in range(len(parts)):
            with contextlib.suppress(ftplib.error_perm):  # it is there; if not, what is written to it will say so
                self.fs.ftp.mkd("/" + "/".join(parts[: i + 1]))

    def _info(self, path: str) -> dict[str, Any]:
        ftp = self.fs.ftp
        ftp.voidcmd("TYPE I")
        try:
            return {"name": path, "type": "file", "size": ftp.size(path)}
        except ftplib.error_perm as error:
            if not str(error).startswith(_UNKNOWN):
                raise
            found: dict[str, Any] = self.fs.info(path)
            return found

    def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = "/" + path.strip("/")
        found = [
            {
                "name": f"{path.rstrip('/')}/{name}",
                "type": "directory" if facts["type"] == "dir" else "file",
                "size": int(facts.get("size", 0)),
            }
            for name, facts in self._asked(self._listed, path)
            if name not in {".", ".."} and facts["type"] not in {"cdir", "pdir"}
        ]
        return found if detail else [info["name"] for info in found]

    def _listed(self, path: str) -> list[tuple[str, dict[str, str]]]:
        try:
            return list(self.fs.ftp.mlsd(path))
        except ftplib.error_perm as error:
            if str(error).startswith("501"):  # pyftpdlib: no folder
                raise FileNotFoundError(path) from error
            if not str(error).startswith(_UNKNOWN):
                raise
        as_ls = import_module("fsspec.implementations.ftp")._mlsd2  # noqa: SLF001
        listed: list[tuple[str, dict[str, str]]] = as_ls(self.fs.ftp, path)
        return listed
