"""Command line: thin over the public functions.

Exit codes: 0 done · 1 what was checked differs or is damaged · 2 wrong arguments · 3 an error of chunkmill.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import click
import dask
from dask.utils import format_bytes
from rich.console import Console
from rich.table import Table

import chunkmill as cm
from chunkmill.errors import ChunkmillError
from chunkmill.hierarchy import Node

__all__ = ["main"]

_FORMATS = click.Choice(["zarr2", "zarr3", "zarr3-draft", "n5"])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="chunkmill")
def main() -> None:
    """Read, write, rechunk and convert chunked arrays on Dask.

    A store is a path or any url that fsspec opens; a node inside it is named with --path.
    """


def _store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--path", default="", help="Path of the node inside the store.")(command)
    return click.option(
        "--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the filesystem; JSON values."
    )(command)


def _job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--scheduler", default="threads", show_default=True, help="threads, processes, or tcp://host:port"
        ),
        click.option("--max-mem", help="Resident memory that a worker may use, such as 2GiB."),
        click.option("--resume/--restart", default=True, show_default=True, help="Go on with an unfinished job."),
        click.option("--overwrite", is_flag=True, help="Replace what is at the target."),
        click.option("--dry-run", is_flag=True, help="Print the plan and do nothing."),
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
    ):
        command = option(command)
    return command


@main.command()
@click.argument("url")
@_store_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--missing", is_flag=True, help="Count the store keys that are absent, and the bytes of the others.")
def info(url: str, path: str, options: tuple[str, ...], *, as_json: bool, missing: bool) -> None:
    """Describe an array or a group.

    Example: chunkmill info volume.n5 --path s0
    """
    with _errors():
        facts = _facts(cm.open(url, path, storage_options=_options(options)), missing=missing)
    if as_json:
        click.echo(json.dumps(facts, indent=2, default=str))
        return
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(f"[bold]{name.replace('_', ' ')}", _text(value))
    _console().print(table)


@main.command()
@click.argument("url")
@_store_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ls(url: str, path: str, options: tuple[str, ...], *, as_json: bool) -> None:
    """Draw the tree of nodes below a group.

    Example: chunkmill ls s3://bucket/archive.zarr --option anon=true
    """
    with _errors():
        node = cm.open(url, path, storage_options=_options(options))
        if as_json:
            click.echo(json.dumps([_facts(n, missing=False) for n in cm.hierarchy.walk(node)], indent=2, default=str))
        else:
            click.echo(node.tree() if isinstance(node, cm.Group) else repr(node))


@main.command()
@click.argument("source")
@click.argument("target")
@click.option("--path", default="", help="Path of the node inside the source.")
@click.option("--target-path", default="", help="Path of the node inside the target.")
@click.option("--format", "format_", type=_FORMATS, default="zarr3", show_default=True, help="Format of the target.")
@click.option("--chunks", help="Chunk shape such as 1,512,512; the source's by default.")
@click.option("--shards", help="Shard shape, or 'none'; the source's by default.")
@click.option("--codecs", default="keep", show_default=True, help="zstd, blosc, gzip, raw, or JSON.")
@_job_options
def convert(source: str, target: str, path: str, target_path: str, format_: str, **options: Any) -> None:
    """Convert an array, or a group with everything below it, to another format.

    Example: chunkmill convert volume.n5 volume.zarr --format zarr3 --shards 512,512,512
    """
    options |= {"chunks": _shape(options["chunks"], "keep"), "shards": _shape(options["shards"], "keep")}
    _run(cm.plan_convert, (source, path), (target, target_path), {"format": format_}, options)


@main.command()
@click.argument("source")
@click.argument("target")
@click.option("--path", default="", help="Path of the node inside the source.")
@click.option("--target-path", default="", help="Path of the node inside the target.")
@click.option("--chunks", required=True, help="Chunk shape such as -1,32,32.")
@click.option("--shards", help="Shard shape; none by default.")
@click.option("--format", "format_", type=_FORMATS, help="Format of the target; the source's by default.")
@click.option("--codecs", default="keep", show_default=True, help="zstd, blosc, gzip, raw, or JSON.")
@_job_options
def rechunk(source: str, target: str, path: str, target_path: str, format_: str | None, **options: Any) -> None:
    """Write an array with other chunks, within a bound on memory.

    Example: chunkmill rechunk maps.zarr series.zarr --path t2m --chunks=-1,32,32 --max-mem 2GiB
    """
    options |= {"chunks": _shape(options["chunks"], None), "shards": _shape(options["shards"], None)}
    _run(cm.plan_rechunk, (source, path), (target, target_path), {"format": format_}, options)


@main.command()
@click.argument("a")
@click.argument("b")
@click.option("--path-a", default="", help="Path of the node inside A.")
@click.option("--path-b", default="", help="Path of the node inside B.")
@click.option("--scheduler", default="threads", show_default=True, help="threads, processes, or tcp://host:port")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def verify(a: str, b: str, path_a: str, path_b: str, scheduler: str, *, as_json: bool) -> None:
    """Compare two arrays or groups bit for bit; exit code 1 when they differ.

    Example: chunkmill verify volume.n5 volume.zarr
    """
    with _errors(), _scheduler(scheduler):
        report = cm.verify((a, path_a), (b, path_b))
    click.echo(json.dumps(report.to_dict(), indent=2, default=str) if as_json else str(report))
    sys.exit(0 if report.equal else 1)


@main.command()
@click.option("--output", default="demo-output", show_default=True, help="Folder for the stores and the plot.")
@click.option("--workers", default=2, show_default=True, help="Processes of the local cluster.")
def demo(output: str, workers: int) -> None:
    """Run the main job on real climate data: write, convert, verify, compute, plot.

    Example: chunkmill demo --output /tmp/demo
    """
    from chunkmill.demo import run_demo  # noqa: PLC0415 - it imports xarray and matplotlib

    with _errors():
        run_demo(output, n_workers=workers)


def _run(plan_function: Callable[..., Any], source: Any, target: Any, named: dict[str, Any], options: Any) -> None:
    resume, dry_run, as_json = options.pop("resume"), options.pop("dry_run"), options.pop("as_json")
    scheduler, codecs = options.pop("scheduler"), options.pop("codecs")
    with _errors(), _scheduler(scheduler):
        plan = plan_function(source, target, codecs=_codecs(codecs), **named, **options)
        result = plan if dry_run else plan.run(resume=resume)
    click.echo(json.dumps(result.to_dict(), indent=2, default=str) if as_json else str(result))


@contextmanager
def _errors() -> Iterator[None]:
    """Show an error of chunkmill as one message, without a traceback."""
    try:
        yield
    except (ChunkmillError, RuntimeError, ValueError, OSError) as error:
        click.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
        sys.exit(3)


@contextmanager
def _scheduler(name: str) -> Iterator[None]:
    if "://" in name:
        from distributed import Client  # noqa: PLC0415 - seconds to import, and seldom wanted

        with Client(name):
            yield
    else:
        with dask.config.set(scheduler=name):
            yield


def _facts(node: Node, *, missing: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": type(node).__name__.lower(), "format": node.format, "url": node.url}
    facts["path"] = node.path
    if isinstance(node, cm.Array):
        grid = node.reading.grid
        facts |= {
            "shape": node.shape,
            "dtype": str(node.dtype),
            "chunks": node.chunks,
            "chunk_bytes": prod(grid.chunk_shape) * node.dtype.itemsize,
            "shards": node.shards,
            "n_chunks": node.nchunks,
            "n_store_keys": node.writing.grid.n_chunks,
            "bytes": node.nbytes,
            "fill_value": node.fill_value,
            "codecs": [{"name": c.name, "configuration": dict(c.configuration)} for c in node.codecs],
            "dimension_names": node.dimension_names,
        }
        if missing:
            facts |= _stored(node)
    else:
        facts["children"] = list(node)
    return facts | {"attributes": dict(node.attributes)}


def _stored(array: cm.Array) -> dict[str, Any]:
    """Count what is stored: one listing and one size a key."""
    keys = [k for k in array.store.list_prefix(array.prefix) if _is_chunk(array, k)]
    n_bytes = sum(array.store.size(key) or 0 for key in keys)
    ratio = round(array.nbytes / n_bytes, 2) if n_bytes else None
    return {
        "missing_keys": array.writing.grid.n_chunks - len(keys),
        "stored_bytes": n_bytes,
        "compression_ratio": ratio,
    }


def _is_chunk(array: cm.Array, key: str) -> bool:
    coords = array.metadata.chunk_keys.decode(key[len(array.prefix) :], array.ndim)
    return coords is not None and all(i < n for i, n in zip(coords, array.writing.grid.grid_shape, strict=True))


def _text(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "\n".join(f"{v['name']} {json.dumps(v['configuration'], default=str)}" for v in value)
    if isinstance(value, dict):
        return json.dumps(value, indent=1, default=str)
    if isinstance(value, int) and not isinstance(value, bool) and value > 1 << 16:
        return f"{value:,} ({format_bytes(value)})"
    return str(value)


def _shape(text: str | None, default: Any) -> Any:
    if text is None:
        return default
    if text in {"none", "keep", "auto"}:
        return None if text == "none" else text
    try:
        lengths = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no shape: write it as 1,512,512") from None
    return lengths


def _codecs(text: str) -> Any:
    return json.loads(text) if text.startswith(("[", "{")) else text


def _options(pairs: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120)
