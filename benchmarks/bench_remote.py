"""Stores that are far away: S3 at 5, 20 and 100 ms a request, reading and writing, two threads and LocalClusters.

300 chunks of 256 KiB, not compressed: what is measured are requests under way. The service (`benchmarks.far_s3`) runs
in a process of its own. The bare loop is obstore's, with 32 requests in flight; others have as many where they can.
Peers with a task a chunk wait for each request, on two threads for two at a time: they have no round that is not
counted, and where a request takes 100 ms one in all.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np

import chunkmill as cm
from benchmarks import harness
from benchmarks.far_s3 import FarS3, far_s3
from benchmarks.harness import BARE, Row

OURS, AUTO, DIRECT = "chunkmill", 'chunkmill, chunks="auto"', "chunkmill a[...]"
ZARR, ZARR_DIRECT = "dask + zarr-python + obstore", "zarr-python + obstore z[...]"
XARRAY, TENSORSTORE = 'xarray engine="zarr" + obstore', "tensorstore"
FROM_ARRAY, DATASET = "da.from_array of a chunkmill array", "xr.open_dataset(chunks={}) by chunkmill"
EMPTY = "dask, empty tasks"
MADE_THERE, SUMMED = "chunkmill, values made on the workers", "dask, sum of what is written"
SUMMED_THERE = "dask, sum of values made on the workers"
IN_TASKS = (OURS, FROM_ARRAY, DATASET)
IN_FLIGHT = 32
CHUNK = (32, 64, 64)  # of u2: 256 KiB
GRID = (12, 5, 5)
LATENCIES = (0.005, 0.02, 0.1)
OF_CLUSTERS = 0.02
LONG = 0.05  # from this latency on, rounds are fewer

Contenders = dict[str, Callable[[], Any]]


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:  # noqa: ARG001 - clusters belong to it
    grid = (3, 2, 2) if quick else GRID
    rows: list[Row] = []
    with far_s3(0.0) as service:
        far = Far(service, grid)
        for latency in LATENCIES:
            service.wait(latency)
            with harness.threads():
                rows += far.measured(latency, "two threads", quick=quick)
        service.wait(OF_CLUSTERS)
        for n_workers, n_threads in ((2, 1), (1, 2)):
            with harness.local_cluster(n_workers, n_threads):
                rows += far.on_cluster(OF_CLUSTERS, f"LocalCluster {n_workers} x {n_threads}", quick=quick)
    return rows


@dataclass(frozen=True)
class Target:
    """Place that contenders write to: another key each time, so that nothing has to be deleted in between."""

    prefix: str
    numbers: Any

    def new(self) -> str:
        return f"{self.prefix}-{next(self.numbers)}"


class Far:
    """The array on the service, and everybody's ways to read and write it."""

    def __init__(self, service: FarS3, grid: tuple[int, ...]) -> None:
        self.service, self.grid = service, grid
        self.values = harness.volume(tuple(n * c for n, c in zip(grid, CHUNK, strict=True)))
        self.x = da.from_array(self.values, chunks=CHUNK, name=False)
        self.options = service.storage_options
        self.keys = ["c/" + "/".join(map(str, coords)) for coords in itertools.product(*map(range, grid))]
        self.target = Target(f"{service.url}/target", itertools.count())
        cm.create_group(f"{service.url}/g", storage_options=self.options)
        cm.to_store(
            self.x, f"{service.url}/g", "a", codecs="raw", dimension_names=list("zyx"), storage_options=self.options
        )  # fmt: skip
        np.testing.assert_array_equal(self.array()[...], self.values)

    @property
    def url(self) -> str:
        return f"{self.service.url}/g/a"

    def array(self) -> cm.Array:
        return cm.open_array(self.url, storage_options=self.options)

    def measured(self, latency: float, where: str, *, quick: bool) -> list[Row]:
        case = f"{latency * 1e3:.0f} ms, {len(self.keys)} chunks of 256 KiB, {where}"
        n_rounds = 1 if quick else 2 if latency >= LONG else 3
        most = 1 if latency >= LONG else n_rounds
        rows = []
        for name, contenders, targets in (
            ("read", self.readers(), {AUTO: (BARE, 1.3), DIRECT: (BARE, 1.3)} | dict.fromkeys(IN_TASKS, (BARE, 2.0))),
            ("write", self.writers(), {OURS: (BARE, 2.0)}),
            ("copy", self.copiers(), {"chunkmill convert": (BARE, 2.0), "chunkmill rechunk": (BARE, 2.0)}),
        ):
            times = in_turn(contenders, n_rounds, most)
            peers = contenders.keys() & {ZARR, ZARR_DIRECT, XARRAY, TENSORSTORE}
            rows += harness.rows(f"remote, {name}", case, times, peers=peers, targets=targets)
        return rows

    def on_cluster(self, latency: float, where: str, *, quick: bool) -> list[Row]:
        case = f"{latency * 1e3:.0f} ms, {len(self.keys)} chunks of 256 KiB, {where}"
        reads = {name: read for name, read in self.readers().items() if name in {BARE, OURS, AUTO, ZARR}}
        empty = da.zeros(self.values.shape, chunks=CHUNK, dtype="u2")
        reads[EMPTY] = lambda: empty.sum().compute()  # what as many tasks cost that request nothing
        writes = {name: write for name, write in self.writers().items() if name in {BARE, OURS, ZARR}}
        writes |= self.writers_on_cluster()
        n_rounds = 1 if quick else 2
        times = in_turn(reads, n_rounds)
        rows = harness.rows("remote, read", case, times, peers=(ZARR,), targets={OURS: (AUTO, 2.0)})
        return rows + harness.rows("remote, write", case, in_turn(writes, n_rounds), peers=(ZARR,))

    # --- reading

    def readers(self) -> Contenders:
        """Return who reads all values; through Dask, their sum."""
        a, client = self.array(), self.client()

        async def get(key: str) -> None:
            await _fetched(client, f"g/a/{key}")

        return {
            BARE: lambda: self.bare(get),
            DIRECT: lambda: a[...],
            OURS: lambda: cm.from_store(self.url, storage_options=self.options).sum().compute(),
            AUTO: lambda: cm.from_store(self.url, chunks="auto", storage_options=self.options).sum().compute(),
            FROM_ARRAY: lambda: da.from_array(self.array(), chunks=CHUNK).sum().compute(),
            DATASET: lambda: self.dataset().a.sum().compute(),
            **self.peers_that_read(),
        }

    def dataset(self) -> Any:
        import xarray

        return xarray.open_dataset(self.url[:-2], engine="chunkmill", chunks={}, storage_options=self.options)

    def peers_that_read(self) -> Contenders:
        import tensorstore
        import xarray
        import zarr

        zarr.config.set({"async.concurrency": IN_FLIGHT})
        z = zarr.open_array(self.zarr_store("g"), path="a", mode="r")
        t = tensorstore.open(self.tensorstore_spec("g/a/"), open=True).result()
        group = self.zarr_store("g")
        return {
            ZARR: lambda: da.from_zarr(z).sum().compute(),
            ZARR_DIRECT: lambda: z[...],
            XARRAY: lambda: xarray.open_dataset(group, engine="zarr", chunks={}, consolidated=False).a.sum().compute(),
            TENSORSTORE: lambda: t.read().result(),
        }

    # --- writing

    def writers(self) -> Contenders:
        """Return who writes the dask array to a new array."""
        client = self.client()
        block = self.values[tuple(map(slice, CHUNK))].tobytes()

        def bare() -> None:
            prefix = self.new_key()

            async def put(key: str) -> None:
                await _stored(client, f"{prefix}/{key}", block)

            self.bare(put)

        return {
            BARE: bare,
            OURS: lambda: cm.to_store(self.x, self.target.new(), codecs="raw", storage_options=self.options),
            **self.peers_that_write(),
        }

    def peers_that_write(self) -> Contenders:
        import tensorstore
        import xarray
        import zarr

        shape, chunk = self.values.shape, CHUNK
        store = self.zarr_store("")
        dataset = xarray.Dataset({"a": (list("zyx"), self.x)})
        codecs = {"a": {"compressors": None, "chunks": chunk}}

        def create() -> Any:
            return zarr.create_array(
                store, name=self.new_key(), shape=shape, chunks=chunk, dtype="u2", compressors=None
            )  # fmt: skip

        def write_tensorstore() -> None:
            grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
            metadata = {"shape": shape, "data_type": "uint16", "chunk_grid": grid, "codecs": [_BYTES]}
            spec = self.tensorstore_spec(f"{self.new_key()}/") | {"metadata": metadata}
            tensorstore.open(spec, create=True).result().write(self.values).result()

        def write_xarray() -> None:
            dataset.to_zarr(self.zarr_store(self.new_key()), mode="w-", encoding=codecs, consolidated=False)

        return {
            ZARR: lambda: self.x.store(create(), lock=False),
            XARRAY: write_xarray,
            TENSORSTORE: write_tensorstore,
        }

    def writers_on_cluster(self) -> Contenders:
        """Return what of writing is the way of the values to the workers, and Dask's tasks."""
        y = da.full(self.values.shape, 7, chunks=CHUNK, dtype="u2")
        return {
            SUMMED: lambda: self.x.sum().compute(),
            MADE_THERE: lambda: cm.to_store(y, self.target.new(), codecs="raw", storage_options=self.options),
            SUMMED_THERE: lambda: y.sum().compute(),
        }

    def copiers(self) -> Contenders:
        """Return jobs from the service to the service; the bare loop gets and puts each value."""
        client = self.client()

        def bare() -> None:
            prefix = self.new_key()

            async def copy(key: str) -> None:
                await _stored(client, f"{prefix}/{key}", await _fetched(client, f"g/a/{key}"))

            self.bare(copy)

        a, options = self.array(), self.options

        def convert() -> None:
            cm.convert(a, self.target.new(), format="zarr3", storage_options=options)

        def rechunk() -> None:
            cm.rechunk(a, self.target.new(), chunks=(64, 64, 32), storage_options=options)

        return {BARE: bare, "chunkmill convert": convert, "chunkmill rechunk": rechunk}

    # --- clients

    def new_key(self) -> str:
        return self.target.new().removeprefix(f"{self.service.url}/")

    def bare(self, one: Callable[[str], Awaitable[None]]) -> None:
        """Call `one` for every key, with so many under way."""

        async def every() -> None:
            limit = asyncio.Semaphore(IN_FLIGHT)

            async def limited(key: str) -> None:
                async with limit:
                    await one(key)

            await asyncio.gather(*map(limited, self.keys))

        asyncio.run(every())

    def client(self, prefix: str = "") -> Any:
        from obstore.store import S3Store

        known: Any = {"access_key_id": "testing", "secret_access_key": "testing", "region": "us-east-1"}
        return S3Store(
            "bucket",
            prefix=prefix or None,
            endpoint=self.service.endpoint,
            client_options={"allow_http": True},
            **known,
        )

    def zarr_store(self, prefix: str) -> Any:
        from zarr.storage import ObjectStore

        return ObjectStore(self.client(prefix))

    def tensorstore_spec(self, path: str) -> dict[str, Any]:
        kvstore = {
            "driver": "s3",
            "bucket": "bucket",
            "path": path,
            "endpoint": self.service.endpoint,
            "aws_region": "us-east-1",
            "aws_credentials": {"type": "anonymous"},
        }
        return {
            "driver": "zarr3",
            "kvstore": kvstore,
            "context": {"s3_request_concurrency": {"limit": IN_FLIGHT}},
        }


_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


async def _fetched(client: Any, key: str) -> Any:
    import obstore

    return await (await obstore.get_async(client, key)).bytes_async()


async def _stored(client: Any, key: str, value: Any) -> None:
    import obstore

    await obstore.put_async(client, key, value)


def in_turn(contenders: Contenders, n_rounds: int, n_slow: int | None = None) -> dict[str, list[float]]:
    """Run every contender once a round, in alternating order; slow ones in the first `n_slow` rounds only.

    Others run once before, which is not counted: connections, imports.
    """
    slow = {ZARR, XARRAY}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(-1, n_rounds):
        with_slow = 0 <= i < (n_rounds if n_slow is None else n_slow)
        order = [(name, function) for name, function in contenders.items() if with_slow or name not in slow]
        for name, function in order if i % 2 else order[::-1]:
            gc.collect()
            start = time.perf_counter()
            function()
            seconds = time.perf_counter() - start
            if i >= 0:
                times[name].append(seconds)
    return times


def n_requests(a: cm.Array) -> int:
    """Return how many requests reading the whole array takes."""
    from chunkmill.stores.wrapper import Meter, MeteredStore

    meter = Meter()
    metered = type(a)(a.stored.with_store(MeteredStore(a.store, meter)))
    metered[...]
    return meter.n_requests


# --- as tests


def test_requests_at_once_are_as_many_for_every_reader(tmp_path):
    """Directly, in one block, in a task for each chunk on more threads than that: the limit is the process's."""
    from support import servers

    from chunkmill.stores.base import max_requests

    most = max_requests()
    values = _written((6, 5, 5), tmp_path / "a")
    with servers.serve_files(tmp_path, latency=0.02) as server:
        a = cm.open_array(f"{server.url}/a")
        reads = [
            lambda: a[...],
            a.to_dask(chunks=-1).compute,
            lambda: a.to_dask().compute(scheduler="threads", num_workers=2 * most),
        ]
        for read in reads:
            server.most_at_once = 0
            np.testing.assert_array_equal(read(), values)
            assert most // 4 < server.most_at_once <= most


def test_a_chunk_is_a_request(tmp_path):
    values = _written((2, 2, 1), tmp_path / "a")
    a = cm.open_array(str(tmp_path / "a"))
    np.testing.assert_array_equal(a[...], values)
    assert n_requests(a) == 4


def test_everybody_reads_and_writes_the_same():
    with far_s3(0.0) as service, harness.threads():
        far = Far(service, (2, 1, 1))
        total = int(far.values.sum(dtype="u8"))
        for name, read in far.readers().items():
            found = read()
            assert name == BARE or int(np.sum(found, dtype="u8")) == total, name
        n = 0
        for contenders in (far.writers(), far.copiers()):
            for name, write in contenders.items():
                write()
                if name != BARE:
                    node = cm.open(f"{far.target.prefix}-{n}", storage_options=far.options)
                    a = node["a"] if isinstance(node, cm.Group) else node
                    np.testing.assert_array_equal(a[...], far.values)
                n += 1


def _written(grid: tuple[int, ...], folder: Path) -> np.ndarray:
    values = harness.volume(tuple(n * c for n, c in zip(grid, CHUNK, strict=True)))
    cm.to_store(da.from_array(values, chunks=CHUNK, name=False), str(folder), codecs="raw")
    return values


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
