"""What tests of integration share: one cluster, process and server of each kind a session; a test has its own client.

`clusters`: what crosses processes (pickles, locks, memory, errors). `servers`: what a protocol answers, and how often it is
asked. `kills`: processes that end or sleep for real, as proof of what `tests/interleavings` explores.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import dask
import pytest
from distributed import Client, LocalCluster
from support.azure_server import azure_server  # noqa: F401 - fixtures, once a session
from support.file_servers import ftp_server, sftp_server, webdav_server  # noqa: F401
from support.gcs_server import gcs_server  # noqa: F401
from support.servers import S3Server, http_server, serve_s3  # noqa: F401


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[LocalCluster]:
    """Two processes of two threads, which no test kills or scales."""
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster


@pytest.fixture
def client(shared_cluster: LocalCluster) -> Iterator[Client]:
    """A client of the shared cluster, which is dask's scheduler during a test."""
    with Client(shared_cluster) as client:
        client.wait_for_workers(2)
        yield client


@pytest.fixture(scope="session")
def shared_process() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def other_process(shared_process: ProcessPoolExecutor) -> Iterator[None]:
    """Tasks run in one other process, as by ``scheduler="processes"``."""
    with dask.config.set(scheduler="processes", pool=shared_process):
        yield


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """moto's S3: make a bucket in each test."""
    with serve_s3() as server:
        yield server
