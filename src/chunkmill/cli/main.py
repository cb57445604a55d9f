"""Commands of ``chunkmill``: each calls one public function and prints its result.

Also available as ``dask chunkmill …``, by the entry point ``dask_cli``. Not here: arguments and options
(`chunkmill.cli.parameters`, `chunkmill.cli.options`). Names of `chunkmill` are imported when they are used, and so is
all that imports dask: help texts, completion and errors of usage do not wait for it.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import click

import chunkmill as cm
from chunkmill.cli.options import (
    CONSOLIDATED,
    JSON,
    command,
    errors_shown,
    job_options,
    kept,
    path_option,
    run_options,
    run_plan,
    say,
    say_facts,
    say_json,
    show,
    viewed,
)
from chunkmill.cli.parameters import KEY_VALUE, PLACE, options_of
from chunkmill.display.report import plain
from chunkmill.errors import JobError, NodeNotFound


class _Commands(click.Group):
    """Commands whose errors of arguments are JSON, too, where a command is to print JSON."""

    def invoke(self, ctx: click.Context) -> Any:
        ctx.meta["chunkmill.json"] = "--json" in ctx.args  # no option is parsed yet
        with errors_shown():
            return super().invoke(ctx)


@click.group(
    "chunkmill",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(cm.__version__)
def main() -> None:
    """Read, write, rechunk and convert chunked arrays on Dask.

    A store is a path (of a folder, a zip file or a reference set) or any url that fsspec opens; a node inside it is
    named with --path. The format of a source is detected.

    \b
    Exit codes:
      0    done
      1    verify found a difference; check or doctor found a problem
      2    wrong arguments
      3    an error, shown on stderr; with --json as one object: kind, message, hint
      75   ended by SIGTERM, as at a walltime: the same command resumes the job
      130  interrupted: the same command resumes an unfinished job
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with this character


# --------------------------------------------------------------------------------------------------------------------
# Look at stores

_node = options_of("open", "url", only=["path", "storage_options"])


@command(main, "Describe an array or a group.")
@_node
@CONSOLIDATED
@click.option(
    "--missing",
    is_flag=True,
    help="Count absent chunks and stored bytes; costs a listing, and a request for the size of each key.",
)
@click.option("-r", "--recursive", is_flag=True, help="Describe all nodes below, too.")
@JSON
def info(*, missing: bool, recursive: bool, **place: Any) -> None:
    """Describe the array or group at URL: metadata, codecs, chunk sizes, attributes.

    With --missing also what is stored of it: absent chunks, bytes, and the compression ratio: decoded bytes divided
    by stored bytes.

    Example commands:
      chunkmill info volume.n5 --path s0
      chunkmill info -r weather.zarr
      chunkmill info --missing --json archive.zarr
    """
    from chunkmill.cli.node_facts import describe, facts_text  # noqa: PLC0415 - slow to import
    from chunkmill.nodes.opening import walk_openable  # noqa: PLC0415

    node = cm.open(**place).stored
    found = [describe(below, count=missing) for below in (walk_openable(node) if recursive else [node])]
    say_facts(found if recursive else found[0], lambda _: "\n\n".join(map(facts_text, found)))


@command(main, "Draw the tree of nodes below a group.")
@_node
@CONSOLIDATED
@click.option("-l", "--long", "as_table", is_flag=True, help="A table of the arrays: shapes, chunks, bytes, codecs.")
@JSON
def ls(*, as_table: bool, **place: Any) -> None:
    """Draw the tree of nodes at and below URL.

    Example commands:
      chunkmill ls s3://bucket/archive.zarr --option anon=true
      chunkmill ls --long data.n5
    """
    from chunkmill.cli.node_facts import describe, listing  # noqa: PLC0415 - slow to import
    from chunkmill.nodes.opening import walk_openable  # noqa: PLC0415

    node = cm.open(**place)
    if kept("json"):
        say_json([describe(below) for below in walk_openable(node.stored)])
    elif as_table:
        say(listing(node.stored))
    else:
        say(node.tree() if isinstance(node, cm.Group) else repr(node))


@command(main, "Print or change attributes.")
@_node
@click.option(
    "--set", "to_set", multiple=True, type=KEY_VALUE, help="Attribute to set; JSON, or text (repeatable): units=K."
)
@click.option("--unset", multiple=True, help="Name of an attribute to delete (repeatable).")
@JSON
def attrs(*, to_set: tuple[tuple[str, Any], ...], unset: tuple[str, ...], **place: Any) -> None:
    """Print the user attributes of the array or group at URL, after changing them.

    Attributes that are not named are kept, those that another process sets at the same time included. Consolidated
    metadata are updated.

    Example commands:
      chunkmill attrs archive.zarr --path t2m
      chunkmill attrs archive.zarr --path t2m --set units=K --set valid_range=[180,340] --unset comment
    """
    values = dict(to_set)
    node = cm.open(**place, mode="r+" if values or unset else "r")
    if missing := sorted(set(unset) - node.attributes.keys()):
        raise click.UsageError(f"--unset names {missing}, where the attributes are {sorted(node.attributes)[:20]}")
    if unset:
        node.del_attributes(*unset)
    if values:
        node.update_attributes(values)
    from chunkmill.cli.node_facts import attribute_lines  # noqa: PLC0415 - slow to import

    say_facts(plain(dict(node.attributes)), lambda shown: "\n".join(attribute_lines(shown)))


@command(main, "Compare two arrays or groups.")
@options_of("verify", "a", "b", target_storage_options="--option-b")
@path_option("--path", "both")
@path_option("--path-a", "A")
@path_option("--path-b", "B")
@CONSOLIDATED
@run_options
def verify(*, a: str, b: str, path: str, path_a: str, path_b: str, consolidated: bool | None, **options: Any) -> None:
    """Compare two arrays or groups bit for bit, whatever chunks and codecs hold them; exit code 1 when they differ.

    --consolidated is of A.

    Example commands:
      chunkmill verify volume.n5 volume.zarr --path s0
      chunkmill verify a.zarr b.zarr --sample 0.01
    """
    first = viewed((a, path_a or path), consolidated, options["storage_options"])
    report = cm.verify(first, (b, path_b or path), **options)
    _show_found(report, report.equal)


@command(main, "Find damaged chunks and leftovers.")
@options_of("check", "url")
@run_options
def check(**options: Any) -> None:
    """Decode everything at and below URL; list torn, short and corrupt chunks, orphans, leftovers, unfinished jobs.

    Exit code 1 when something is wrong and was not repaired.

    Example commands:
      chunkmill check archive.zarr
      chunkmill check --repair --json s3://bucket/archive.zarr
    """
    report = cm.check(**options)
    _show_found(report, report.ok)


@command(main, "Examine versions, a store, a cluster.")
@click.argument("url", type=PLACE, required=False)
@options_of("open", only=["storage_options"])
@run_options
def doctor(**options: Any) -> None:
    """Print versions, and what is slow or unsafe about the store at URL and the workers of a cluster, and why.

    A scratch key is written to the store and deleted again: it shows whether conditional writes are refused as they
    must be, and how long a request takes. Exit code 1 when something was found.

    Example commands:
      chunkmill doctor
      chunkmill doctor s3://bucket/archive.zarr --scheduler tcp://host:8786 --json
    """
    from chunkmill.checks.doctor import doctor as examine  # noqa: PLC0415 - slow to import

    report = examine(**options)
    _show_found(report, report.ok)


def _show_found(report: Any, is_well: bool) -> None:
    show(report)
    sys.exit(0 if is_well else 1)


# --------------------------------------------------------------------------------------------------------------------
# Jobs


@command(main, "Convert to another format.")
@options_of("plan_convert", "source", "target")
@job_options
def convert(*, source: str, path: str, **options: Any) -> None:
    """Convert the array or group SOURCE, with everything below it, to another format at TARGET.

    Chunks are copied without decoding wherever their bytes mean the same in the target. The target appears when it is
    complete; an interrupted job resumes when the command is run again.

    Example commands:
      chunkmill convert volume.n5 volume.zarr --format zarr3 --shards 512,512,512
      chunkmill convert scan.n5 scan.zarr --ome 0.5
      chunkmill convert 'data/*.nc' all.zarr --concat time --chunks time=720
      chunkmill convert old.zarr new.zarr --dry-run --json
      chunkmill convert s3://b/x.zarr s3://b/x.n5 --format n5 --scheduler tcp://10.0.0.1:8786
    """
    run_plan(cm.plan_convert, (source, path), **options)


@command(main, "Write with other chunks.")
@options_of("plan_rechunk", "source", "target")
@job_options
def rechunk(*, source: str, path: str, **options: Any) -> None:
    """Write the array SOURCE, or every array of a group, with other chunks to TARGET, within a bound on memory.

    Each element is read and written once; where few target chunks fit in memory at a time, it also passes through
    intermediate files, which are deleted when the job is done.

    Example commands:
      chunkmill rechunk maps.zarr series.zarr --path t2m --chunks=-1,32,32 --max-mem 2GiB
      chunkmill rechunk maps.zarr series.zarr --chunks time=-1,lat=32,lon=32 --dry-run
    """
    run_plan(cm.plan_rechunk, (source, path), **options)


@command(main, "Make levels of lower resolution.")
@options_of("plan_pyramid", "source", "target")
@click.option(
    "--join", multiple=True, help="Path of a further array in SOURCE, joined along a new axis c (repeatable)."
)
@job_options
def pyramid(*, source: str, path: str, join: tuple[str, ...], **options: Any) -> None:
    """Write the array SOURCE, or the finest level of an image, and its reductions as the levels of TARGET.

    Without TARGET, the reductions are written to the group of SOURCE, an array whose name ends with 0. Each element is
    read once. The levels appear when all are complete; an interrupted job resumes when the command is run again.

    Example commands:
      chunkmill pyramid scan.n5 image.zarr --path volume/s0 --format zarr3 --shards 512,512,512
      chunkmill pyramid volume.zarr --path scan/0
      chunkmill pyramid labels.zarr labels-pyramid.zarr --method mode --factors 1,2,2 --levels 5
      chunkmill pyramid scan.n5 image.zarr --factors isotropic --scale z=40,y=4,x=4 --units nanometer
      chunkmill pyramid scan.n5 image.zarr --path c0/s0 --join c1/s0 --channels dapi,gfp --format zarr3
    """
    arrays = [(source, each) for each in (path, *join)]
    run_plan(cm.plan_pyramid, arrays if join else arrays[0], **options)


@command(main, "List unfinished jobs of a store.")
@options_of("jobs", "url")
@click.option("--discard", is_flag=True, help="Drop those whose clients have died, with what is on record.")
@JSON
def jobs(*, discard: bool, **place: Any) -> None:
    """List the jobs that write to the store at URL and have not ended, of any process.

    A job is running while its client is alive. An interrupted one resumes when it is run again. With --discard, the
    client of a job that is silent is watched for some 20 seconds first; jobs that are running stay.

    Example commands:
      chunkmill jobs s3://bucket/archive.zarr
    """
    found = cm.jobs(**place)
    if not (found or discard):
        try:
            cm.open(**place)
        except NodeNotFound as error:
            raise click.UsageError(str(error)) from error
    for job in found if discard else ():
        with suppress(JobError):  # it is running, and is listed
            job.discard()
    found = cm.jobs(**place) if discard else found
    say_facts([job.to_dict() for job in found], lambda _: "\n".join(map(str, found)) or "no unfinished jobs")


@command(main, "Resume an unfinished job of a store.")
@options_of("resume", "url")
@run_options
def resume(**options: Any) -> None:
    """Resume the unfinished convert, rechunk or pyramid that writes to the store at URL, with its own arguments.

    What is done stays done. The workers may be others than those that began it.

    Example commands:
      chunkmill resume s3://bucket/archive.zarr
      chunkmill resume archive.zarr --path t2m
    """
    show(cm.resume(**options))


# --------------------------------------------------------------------------------------------------------------------
# Reference sets


@main.group(short_help="Reference sets: write, join and describe them.")
def refs() -> None:
    """Write, join and describe reference sets: byte ranges of other files that read as Zarr, as kerchunk makes them.

    Any command that reads a store also reads a set: the path of its JSON file, or of its parquet folder.
    """


@command(refs, "Write references to the bytes of a store.")
@options_of("to_references", "source", "target", format="--kind")
@path_option("--path", "the source")
@path_option("--target-path", "the set; xarray only finds arrays in groups")
@run_options
def make(*, source: str, path: str, target: str, target_path: str, **options: Any) -> None:
    """Write a reference set over the array or group SOURCE to TARGET: no data is copied.

    Readers of kerchunk's sets read it as Zarr. It is valid until somebody writes to the source.

    Example commands:
      chunkmill refs make archive.zarr archive.json
      chunkmill refs make volume.n5 volume.parquet --path s0 --target-path s0
      chunkmill refs make set.json set.parquet
    """
    show(cm.to_references((source, path), (target, target_path), **options))


@command(refs, "Join sets along a dimension.")
@options_of("concat_references", "sets", without=["target"], format="--kind")
@click.argument("target", type=PLACE)
@click.option("--dry-run", is_flag=True, help="Describe the set without writing it.")
@JSON
def combine(*, sets: tuple[str, ...], target: str, dry_run: bool, **options: Any) -> None:
    """Join reference SETS along a dimension, in their order, and write the result to TARGET.

    They must agree in everything but the length of that dimension; otherwise nothing is written, and all arrays that
    differ are listed.

    Example commands:
      chunkmill refs combine monday.json tuesday.json week.json --dim time
      chunkmill refs combine 2024-*.json 2024.parquet --dim time
    """
    _show_set(cm.concat_references(sets, target=None if dry_run else target, **options).store)


@command(refs, "Describe a set.", "info")
@options_of("open", "url", only=["storage_options"])
@JSON
def describe_references(*, url: str, storage_options: Any) -> None:
    """Describe the reference set at URL: its arrays, how many references it has and where they point.

    The whole set is read. `chunkmill info` and `ls` describe its arrays, as in any store.

    Example commands:
      chunkmill refs info archive.json
      chunkmill refs info s3://bucket/set.parquet --json
    """
    from chunkmill.nodes.reference_sets import open_reference_store  # noqa: PLC0415 - slow to import

    _show_set(open_reference_store(url, storage_options))


def _show_set(store: Any) -> None:
    from chunkmill.cli.node_facts import describe_set, set_text  # noqa: PLC0415 - slow to import

    say_facts(describe_set(store), set_text)


@command(main, "Scan netCDF and HDF5 files to a reference set.")
@options_of("plan_scan", "urls", "target")
@click.option(
    "--no-records", is_flag=True, help="Keep no records: a scan that is interrupted begins again from its first file."
)
@click.option("--dry-run", is_flag=True, help="Show the plan alone.")
@run_options
def scan(*, urls: tuple[str, ...], no_records: bool, dry_run: bool, **options: Any) -> None:
    """Scan files at URLS, one task a file, to one reference set at TARGET, which opens like any store.

    No data is copied. URLS are several, a pattern in quotes, or a .txt file with a url in each line. After an
    interruption, the same command parses only files without a record.

    Example commands:
      chunkmill scan data/2026-*.nc 2026.json --concat time
      chunkmill scan 's3://bucket/*.nc' all.parquet --concat time --option anon=true --overwrite
      chunkmill scan files.txt all.parquet --concat time --on-error skip --dry-run
    """
    if no_records:
        options["records"] = False
    plan = cm.plan_scan(urls[0] if len(urls) == 1 else urls, **options)
    show(plan if dry_run else plan.run())
