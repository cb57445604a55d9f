"""Commands of ``chunkmill``: each calls one public function and prints its result.

Also available as ``dask chunkmill …``, by the entry point ``dask_cli``. Not here: arguments and options
(`chunkmill.cli.options`), descriptions of nodes (`chunkmill.cli.node_facts`). Names of `chunkmill` are imported when
they are used, and so is whatever else imports dask: help texts, completion and errors of usage do not wait for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from copy import copy
from typing import Any

import click

import chunkmill as cm
from chunkmill.cli.attributes import attrs
from chunkmill.cli.jobs import jobs
from chunkmill.cli.options import (
    CODECS,
    FORMATS,
    JSON_VALUE,
    NAMES,
    PLACE,
    SHAPE,
    errors_shown,
    examples,
    job_options,
    plain,
    run_options,
    run_plan,
    say,
    scheduled,
    show,
    storage_option,
    store_options,
)
from chunkmill.cli.pyramid import pyramid
from chunkmill.cli.references import refs
from chunkmill.cli.region import region_option

__all__ = ["main"]

_EPILOG = """\b
Exit codes:
  0    done
  1    verify found a difference, or check found a problem
  2    wrong arguments
  3    an error, shown on stderr
  130  interrupted: the same command resumes an unfinished job

\b
Shell completion, for bash, zsh or fish:
  eval "$(_CHUNKMILL_COMPLETE=bash_source chunkmill)"

Settings are in dask's config, under `chunkmill:`.
"""


@click.group(
    "chunkmill",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=_EPILOG,
)
@click.version_option(cm.__version__)
def main() -> None:
    """Read, write, rechunk and convert chunked arrays on Dask.

    A store is a path (of a folder, a zip file or a reference set) or any url that fsspec opens; a node inside it is
    named with --path. The format of a source is detected.
    """


@main.command(
    short_help="Describe an array or a group.",
    epilog=examples("chunkmill info volume.n5 --path s0", "chunkmill info --missing --json archive.zarr"),
)
@click.argument("url", type=PLACE)
@store_options
@click.option(
    "--missing",
    is_flag=True,
    help="Count absent chunks and stored bytes; costs a listing, and a request for the size of each key.",
)
def info(url: str, path: str, storage_options: Mapping[str, Any] | None, *, as_json: bool, missing: bool) -> None:
    """Describe the array or group at URL: metadata, codecs, chunk sizes, attributes.

    With --missing also what is stored of it: absent chunks, bytes, and the compression ratio: decoded bytes divided
    by stored bytes.
    """
    from chunkmill.cli.node_facts import describe, facts_text  # noqa: PLC0415 - slow to import

    with errors_shown():
        facts = describe(cm.open(url, path, storage_options=storage_options), count=missing)
    say(json.dumps(plain(facts), indent=2, allow_nan=False) if as_json else facts_text(facts))


@main.command(
    short_help="Draw the tree of nodes below a group.",
    epilog=examples("chunkmill ls s3://bucket/archive.zarr --option anon=true", "chunkmill ls --long data.n5"),
)
@click.argument("url", type=PLACE)
@store_options
@click.option("-l", "--long", "as_table", is_flag=True, help="A table of the arrays: shapes, chunks, bytes, codecs.")
def ls(url: str, path: str, storage_options: Mapping[str, Any] | None, *, as_json: bool, as_table: bool) -> None:
    """Draw the tree of nodes at and below URL. `tree` is the same command."""
    from chunkmill.cli.node_facts import describe, listing  # noqa: PLC0415 - slow to import
    from chunkmill.nodes import hierarchy  # noqa: PLC0415

    with errors_shown():
        node = cm.open(url, path, storage_options=storage_options)
        if as_json:
            nodes = [plain(describe(below)) for below in hierarchy.walk(node)]
            click.echo(json.dumps(nodes, indent=2, allow_nan=False))
        elif as_table:
            say(listing(node))
        else:
            say(node.tree() if isinstance(node, cm.Group) else repr(node))


_tree = copy(ls)  # with a name of its own in help texts
_tree.name = "tree"
main.add_command(_tree)
main.add_command(attrs)
main.add_command(jobs)


@main.command(
    short_help="Convert to another format.",
    epilog=examples(
        "chunkmill convert volume.n5 volume.zarr --format zarr3 --shards 512,512,512",
        "chunkmill convert scan.n5 scan.zarr --ome 0.5",
        "chunkmill convert old.zarr new.zarr --dry-run --json",
        "chunkmill convert s3://b/x.zarr s3://b/x.n5 --format n5 --scheduler tcp://10.0.0.1:8786",
    ),
)
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@click.option("--format", "format_", type=FORMATS, default="zarr3", show_default=True, help="Format of the target.")
@click.option(
    "--chunks",
    type=SHAPE,
    default="keep",
    show_default=True,
    help="Chunk shape, such as 1,512,512, or lengths by dimension, such as time=-1,lat=32.",
)
@click.option("--shards", type=SHAPE, default="keep", show_default=True, help="Shard shape, or none.")
@click.option("--codecs", type=CODECS, default="keep", show_default=True, help="zstd, blosc, gzip, raw, or JSON.")
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["fill_value", "codecs", "dimension_names", "attributes"]),
    help="What may be lost if the format cannot hold it (repeatable); values never are.",
)
@click.option(
    "--include", multiple=True, help="Convert only nodes that match, with all below, such as 't2*' (repeatable)."
)
@click.option("--exclude", multiple=True, help="Leave out nodes that match, with all below (repeatable).")
@region_option("Convert only this region")
@click.option("--dimension-names", type=NAMES, help="Names of the axes, such as time,lat,lon.")
@click.option("--fill-value", type=JSON_VALUE, help="Fill value of the target, JSON or text; values stay as they are.")
@click.option(
    "--chunk-key-encoding", type=click.Choice(["/", "."]), help="Separator in chunk keys, such as / for nested."
)
@click.option(
    "--ome", type=click.Choice(["0.4", "0.5"]), help="Describe the images in the source by this version of OME-Zarr."
)
@job_options
def convert(
    source: str, target: str, *, path: str, target_path: str, format_: str, include: tuple[str, ...], **options: Any
) -> None:
    """Convert the array or group SOURCE, with everything below it, to another format at TARGET.

    Chunks are copied without decoding wherever their bytes mean the same in the target. The target appears when it is
    complete; an interrupted job resumes when the command is run again.
    """
    run_plan(
        cm.plan_convert,
        (source, path),
        (target, target_path),
        options | {"format": format_, "include": include or None},
    )


@main.command(
    short_help="Write with other chunks.",
    epilog=examples(
        "chunkmill rechunk maps.zarr series.zarr --path t2m --chunks=-1,32,32 --max-mem 2GiB",
        "chunkmill rechunk maps.zarr series.zarr --chunks time=-1,lat=32,lon=32 --dry-run",
    ),
)
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@click.option(
    "--chunks",
    type=SHAPE,
    required=True,
    help="Chunk shape, such as --chunks=-1,32,32, or lengths by dimension: time=-1,lat=32; -1: all of an axis.",
)
@click.option("--shards", type=SHAPE, default="keep", show_default=True, help="Shard shape, or none.")
@click.option("--format", "format_", type=FORMATS, help="Format of the target; the source's by default.")
@click.option("--codecs", type=CODECS, default="keep", show_default=True, help="zstd, blosc, gzip, raw, or JSON.")
@click.option("--include", multiple=True, help="Only nodes that match, with all below, such as 't2*' (repeatable).")
@click.option("--exclude", multiple=True, help="Leave out nodes that match, with all below (repeatable).")
@region_option("Only this region")
@click.option(
    "--chunk-key-encoding", type=click.Choice(["/", "."]), help="Separator in chunk keys, such as / for nested."
)
@click.option(
    "--strategy",
    type=click.Choice(["direct", "spill"]),
    help="Strategy to use instead of the one estimated to be faster.",
)
@job_options
def rechunk(
    source: str,
    target: str,
    *,
    path: str,
    target_path: str,
    format_: str | None,
    include: tuple[str, ...],
    **options: Any,
) -> None:
    """Write the array SOURCE, or every array of a group, with other chunks to TARGET, within a bound on memory.

    Each element is read and written once; where few target chunks fit in memory at a time, it also passes through
    intermediate files, which are deleted when the job is done.
    """
    chosen = options | {"format": format_, "include": include or None}
    run_plan(cm.plan_rechunk, (source, path), (target, target_path), chosen)


main.add_command(pyramid)
main.add_command(refs)


@main.command(
    short_help="Compare two arrays or groups.",
    epilog=examples("chunkmill verify volume.n5 volume.zarr", "chunkmill verify a.zarr b.zarr --sample 0.01"),
)
@click.argument("a", type=PLACE)
@click.argument("b", type=PLACE)
@click.option("--path-a", default="", help="Path of the node inside A.")
@click.option("--path-b", default="", help="Path of the node inside B.")
@region_option("Compare B with this region of A")
@click.option("--sample", type=click.FloatRange(0, 1, min_open=True), help="Compare this share of the blocks only.")
@storage_option("--option", "storage_options", " of A (and of B)")
@storage_option("--option-b", "storage_options_b", " of B")
@run_options
def verify(
    a: str, b: str, *, path_a: str, path_b: str, scheduler: str, progress: bool | None, as_json: bool, **options: Any
) -> None:
    """Compare two arrays or groups bit for bit, whatever chunks and codecs hold them; exit code 1 when they differ."""
    with scheduled(scheduler, progress=progress):
        report = cm.verify((a, path_a), (b, path_b), **options)
    show(report, as_json=as_json)
    sys.exit(0 if report.equal else 1)


@main.command(
    short_help="Find damaged chunks and leftovers.",
    epilog=examples("chunkmill check archive.zarr", "chunkmill check --repair --json s3://bucket/archive.zarr"),
)
@click.argument("url", type=PLACE)
@click.option("--path", default="", help="Path of the node inside the store.")
@storage_option("--option", "storage_options", "")
@click.option("--repair", is_flag=True, help="Remove leftovers, and write stale consolidated metadata again.")
@run_options
def check(
    url: str,
    path: str,
    storage_options: Mapping[str, Any] | None,
    *,
    repair: bool,
    scheduler: str,
    progress: bool | None,
    as_json: bool,
) -> None:
    """Decode everything at and below URL; list torn, short and corrupt chunks, orphans, leftovers, unfinished jobs.

    Exit code 1 when something is wrong and was not repaired.
    """
    with scheduled(scheduler, progress=progress):
        report = cm.check(url, path, repair=repair, storage_options=storage_options)
    show(report, as_json=as_json)
    sys.exit(0 if report.ok else 1)


@main.command(short_help="Run the main job on real data.", epilog=examples("chunkmill demo --output /tmp/demo"))
@click.option(
    "--output", type=PLACE, default="demo-output", show_default=True, help="Folder for the stores and the plot."
)
@click.option("--workers", default=2, show_default=True, help="Processes of the local cluster.")
def demo(output: str, workers: int) -> None:
    """Run the main job on real data: write, convert, verify, compute, plot.

    The data come with the extra `demo`: climate model output, satellite sea surface temperatures, a brain.
    """
    from chunkmill.cli.demo import run_demo  # noqa: PLC0415 - it imports xarray and matplotlib

    with errors_shown():
        run_demo(output, n_workers=workers)
