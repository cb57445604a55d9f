"""Azurite, the blob service of Azure's emulator: real protocol, real conditions. From npm, kept in the user's cache."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from uuid import uuid4

import pytest

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # known to all
_SECONDS = 240


@dataclass
class AzureServer:
    """Azurite on a free port."""

    endpoint_url: str

    @property
    def storage_options(self) -> dict:
        address = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={self.endpoint_url}/{ACCOUNT}"
        return {"connection_string": address}

    def new_container(self) -> str:
        """Make an empty container and return its url."""
        name = f"container-{uuid4().hex[:12]}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        signed = "PUT" + "\n" * 12 + "".join(f"{k}:{v}\n" for k, v in headers.items())
        signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        connection = http.client.HTTPConnection(self.endpoint_url.removeprefix("http://"), timeout=30)
        connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers={**headers, "Content-Length": "0"})
        response = connection.getresponse()
        assert response.status == 201, response.read()
        connection.close()
        return f"az://{name}"


def _program() -> str:
    """Path of Azurite, installed once; the test is skipped where it cannot be had."""
    if (found := shutil.which("azurite-blob")) is not None:
        return found
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "chunkmill-tests" / "azurite"
    if (found := shutil.which("azurite-blob", path=folder / "node_modules" / ".bin")) is None:
        if (npm := shutil.which("npm")) is None:
            pytest.skip("AZURE IS NOT TESTED: there is neither Azurite nor npm to install it")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as new:
            command = [npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", f"{new}/azurite", "azurite@3"]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"AZURE IS NOT TESTED: Azurite could not be installed: {error}")
            with contextlib.suppress(OSError):  # another process was faster
                Path(new, "azurite").rename(folder)
        found = shutil.which("azurite-blob", path=folder / "node_modules" / ".bin")
    return found


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """Azurite's blob service in memory, for all tests: make a container in each."""
    command = [_program(), "--inMemoryPersistence", "--blobPort", "0", "--skipApiVersionCheck", "--disableTelemetry"]
    process = subprocess.Popen([*command, "--silent"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in process.stdout:
            if match := re.search(r"successfully listens on (http://\S+)", line):
                break
        else:
            pytest.skip(f"AZURE IS NOT TESTED: Azurite ended with {process.wait()}")
        yield AzureServer(match[1])
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
