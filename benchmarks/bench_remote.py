"""Remote stores: HTTP with 20 ms latency, and S3 (moto, which is slow for all of them).

300 chunks of 256 KiB, not compressed. The servers run in processes of their own. The bare loop asks for whole values in
as many threads as we have requests under way, each with a connection of its own that it keeps.
"""

from __future__ import annotations

import http.client
import itertools
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import Any
from urllib.parse import urlsplit

import dask.array as da
import numpy as np

import chunkmill as cm
from benchmarks import harness
from benchmarks.harness import BARE, Row
from chunkmill.stores.filesystems import max_requests

OURS, DIRECT = "chunkmill", "chunkmill a[...]"
ZARR, TENSORSTORE, OBSTORE = "dask + zarr-python + fsspec", "tensorstore", "obstore"
IN_FLIGHT = max_requests()  # requests that one of our processes has under way: the same for all that can be configured
CHUNK = (32, 64, 64)  # of u2: 256 KiB
GRID = (12, 5, 5)
LATENCY = 0.02


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:  # noqa: ARG001 - one signature for all
    grid = (3, 2, 2) if quick else GRID
    with tempfile.TemporaryDirectory() as folder, harness.threads():
        return [*bench_http(grid, Path(folder) / "h", quick=quick), *bench_s3(grid, quick=quick)]


def bench_http(grid: tuple[int, ...], folder: Path, *, quick: bool) -> list[Row]:
    values = fill(grid, str(folder / "a"))
    keys = ["a/c/" + "/".join(map(str, coords)) for coords in itertools.product(*map(range, grid))]
    with serve(folder) as url:
        a, x = cm.open_array(f"{url}/a"), cm.from_store(f"{url}/a")
        contenders: dict[str, Callable[[], Any]] = {
            BARE: lambda: bare_read(url, keys),
            DIRECT: lambda: a[...],
            OURS: x.compute,
            "chunkmill, chunks=-1": cm.from_store(f"{url}/a", chunks=-1).compute,
            ZARR: da.from_zarr(f"{url}/a").compute,
        }
        import tensorstore as ts

        context = {"http_request_concurrency": {"limit": IN_FLIGHT}}
        t = ts.open({"driver": "zarr3", "kvstore": f"{url}/a/", "context": context}, open=True).result()
        contenders[TENSORSTORE] = lambda: t.read().result()
        if (obstore := obstore_reader(url, keys)) is not None:
            contenders[OBSTORE] = obstore
        np.testing.assert_array_equal(a[...], values)
        times = harness.alternate(contenders, harness.rounds(quick, 5))
        counts = {DIRECT: {"requests": n_requests(a), "bytes": values.nbytes, "at once": IN_FLIGHT}}
    targets = {DIRECT: (OBSTORE if OBSTORE in times else BARE, 1.3)}
    case = f"HTTP, 20 ms, {len(keys)} chunks of 256 KiB"
    return harness.rows("remote", case, times, peers=(ZARR, TENSORSTORE, OBSTORE), targets=targets, counts=counts)


def bench_s3(grid: tuple[int, ...], *, quick: bool) -> list[Row]:
    with serve_s3() as (endpoint, bucket):
        client = {"endpoint_url": endpoint, "region_name": "us-east-1"}
        options = {"key": "testing", "secret": "testing", "client_kwargs": client}
        values = fill(grid, f"{bucket}/a", options)
        a = cm.open_array(f"{bucket}/a", storage_options=options)
        np.testing.assert_array_equal(a[...], values)
        contenders: dict[str, Callable[[], Any]] = {
            DIRECT: lambda: a[...],
            OURS: cm.from_store(f"{bucket}/a", storage_options=options).compute,
            ZARR: da.from_zarr(f"{bucket}/a", storage_options=options).compute,
        }
        times = harness.alternate(contenders, harness.rounds(quick, 5))
        counts = {DIRECT: {"requests": n_requests(a), "bytes": values.nbytes}}
    case = f"S3 (moto), {int(np.prod(grid))} chunks of 256 KiB"
    return harness.rows("remote", case, times, peers=(ZARR,), counts=counts)


def fill(grid: tuple[int, ...], url: str, options: dict[str, Any] | None = None) -> np.ndarray:
    values = harness.volume(tuple(n * c for n, c in zip(grid, CHUNK, strict=True)))
    cm.to_store(da.from_array(values, chunks=CHUNK, name=False), url, codecs="raw", storage_options=options)
    return values


def n_requests(a: cm.Array) -> int:
    """Return how many requests reading the whole array takes."""
    from chunkmill.stores.metered import Meter, MeteredStore

    meter = Meter()
    metered = type(a)(MeteredStore(a.store, meter), a.path, a.metadata, a.format, a.prefix)
    metered[...]
    return meter.n_requests


def bare_read(url: str, keys: list[str]) -> int:
    address, mine = urlsplit(url).netloc, local()

    def one(key: str) -> int:
        if not hasattr(mine, "connection"):
            mine.connection = http.client.HTTPConnection(address)
        mine.connection.request("GET", f"/{key}")
        return len(mine.connection.getresponse().read())

    return sum(harness.in_threads(one, keys, IN_FLIGHT))


def obstore_reader(url: str, keys: list[str]) -> Callable[[], Any] | None:
    """Return a function that fetches every key with as many requests in flight as ours."""
    try:
        import obstore
        from obstore.store import HTTPStore
    except ImportError:
        return None
    import asyncio

    store = HTTPStore.from_url(url, client_options={"allow_http": True})

    async def fetch() -> int:
        limit = asyncio.Semaphore(IN_FLIGHT)

        async def one(key: str) -> int:
            async with limit:
                return len(await (await obstore.get_async(store, key)).bytes_async())

        return sum(await asyncio.gather(*map(one, keys)))

    return lambda: asyncio.run(fetch())


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder from a process of its own, with latency."""
    with _process(_serve_files, str(folder)) as url:
        yield url


@contextmanager
def serve_s3() -> Iterator[tuple[str, str]]:
    with _process(_serve_s3, "") as answer:
        yield answer


@contextmanager
def _process(target: Callable[..., None], argument: str) -> Iterator[Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(argument, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join()


def _serve_files(folder: str, pipe: Any) -> None:
    servers = _servers()
    with servers.serve_files(folder, latency=LATENCY) as server:
        pipe.send(server.url)
        pipe.recv()


def _serve_s3(_: str, pipe: Any) -> None:
    servers = _servers()
    with servers.serve_s3() as server:
        pipe.send((server.endpoint_url, server.new_bucket()))
        pipe.recv()


def _servers() -> Any:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    import servers

    return servers


# --- as tests


def test_requests_at_once_are_as_many_whoever_reads(tmp_path):
    """Directly, in one block, in a task for each chunk on more threads than that: the limit is the process's."""
    values = fill(GRID, str(tmp_path / "a"))
    with _servers().serve_files(tmp_path, latency=LATENCY) as server:
        a = cm.open_array(f"{server.url}/a")
        reads = [
            lambda: a[...],
            a.to_dask(chunks=-1).compute,
            lambda: a.to_dask().compute(scheduler="threads", num_workers=2 * IN_FLIGHT),
        ]
        for read in reads:
            server.most_at_once = 0
            np.testing.assert_array_equal(read(), values)
            assert IN_FLIGHT // 4 < server.most_at_once <= IN_FLIGHT


def test_a_chunk_is_a_request(tmp_path):
    values = fill((2, 2, 1), str(tmp_path / "a"))
    a = cm.open_array(str(tmp_path / "a"))
    np.testing.assert_array_equal(a[...], values)
    assert n_requests(a) == 4


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
