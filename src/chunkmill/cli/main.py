"""Commands of ``chunkmill``: each calls one public function and prints its result.

Also available as ``dask chunkmill …``, by the entry point ``dask_cli``. Not here: the commands
that write a node again (`chunkmill.cli.convert`) or make reference sets (`chunkmill.cli.references`), arguments and
options (`chunkmill.cli.options`). Names of `chunkmill` are imported when they are used, and so is all that imports
dask: help texts, completion and errors of usage do not wait for it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from typing import Any

import click

import chunkmill as cm
from chunkmill.cli.convert import convert, pyramid, rechunk
from chunkmill.cli.doctor import doctor
from chunkmill.cli.options import (
    CONSOLIDATED,
    JSON_FLAG,
    KEY_VALUE,
    PLACE,
    errors_shown,
    examples,
    plain,
    region_option,
    run_options,
    say,
    scheduled,
    show,
    storage_option,
    store_options,
    viewed,
    viewed_options,
)
from chunkmill.cli.references import refs, scan
from chunkmill.errors import JobError

__all__ = ["main"]

_EPILOG = """\b
Exit codes:
  0    done
  1    verify found a difference; check or doctor found a problem
  2    wrong arguments
  3    an error, shown on stderr
  75   ended by SIGTERM, as at a walltime: the same command resumes the job
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
    epilog=examples(
        "chunkmill info volume.n5 --path s0",
        "chunkmill info -r weather.zarr",
        "chunkmill info --missing --json archive.zarr",
    ),
)
@click.argument("url", type=PLACE)
@viewed_options
@click.option(
    "--missing",
    is_flag=True,
    help="Count absent chunks and stored bytes; costs a listing, and a request for the size of each key.",
)
@click.option(
    "-r", "--recursive", is_flag=True, help="Dimensions, variables and attributes of all below, like ncdump -h."
)
def info(
    url: str,
    path: str,
    storage_options: Mapping[str, Any] | None,
    *,
    as_json: bool,
    consolidated: bool | None,
    missing: bool,
    recursive: bool,
) -> None:
    """Describe the array or group at URL: metadata, codecs, chunk sizes, attributes.

    With --missing also what is stored of it: absent chunks, bytes, and the compression ratio: decoded bytes divided
    by stored bytes.
    """
    from chunkmill.cli.node_facts import describe, facts_text, headers  # noqa: PLC0415 - slow to import
    from chunkmill.nodes.opening import walk_openable  # noqa: PLC0415

    with errors_shown():
        node = cm.open(url, path, storage_options=storage_options, consolidated=consolidated)
        if recursive and not as_json:
            say(headers(node.stored))
            return
        if recursive:
            found = [plain(describe(below, count=missing)) for below in walk_openable(node.stored)]
            say(json.dumps(found, indent=2, allow_nan=False))
            return
        facts = describe(node.stored, count=missing)
    say(json.dumps(plain(facts), indent=2, allow_nan=False) if as_json else facts_text(facts))


@main.command(
    short_help="Draw the tree of nodes below a group.",
    epilog=examples("chunkmill ls s3://bucket/archive.zarr --option anon=true", "chunkmill ls --long data.n5"),
)
@click.argument("url", type=PLACE)
@viewed_options
@click.option("-l", "--long", "as_table", is_flag=True, help="A table of the arrays: shapes, chunks, bytes, codecs.")
def ls(
    url: str,
    path: str,
    storage_options: Mapping[str, Any] | None,
    *,
    as_json: bool,
    consolidated: bool | None,
    as_table: bool,
) -> None:
    """Draw the tree of nodes at and below URL. `ls` and `tree` are the same command."""
    from chunkmill.cli.node_facts import describe, listing  # noqa: PLC0415 - slow to import
    from chunkmill.nodes import opening  # noqa: PLC0415

    with errors_shown():
        node = cm.open(url, path, storage_options=storage_options, consolidated=consolidated)
        if as_json:
            nodes = [plain(describe(below)) for below in opening.walk_openable(node.stored)]
            click.echo(json.dumps(nodes, indent=2, allow_nan=False))
        elif as_table:
            say(listing(node.stored))
        else:
            say(node.tree() if isinstance(node, cm.Group) else repr(node))


_tree = copy(ls)  # with a name of its own in help texts
_tree.name = "tree"
main.add_command(_tree)


@main.command(
    short_help="Print or change attributes.",
    epilog=examples(
        "chunkmill attrs archive.zarr --path t2m",
        "chunkmill attrs archive.zarr --path t2m --set units=K --set valid_range=[180,340] --unset comment",
    ),
)
@click.argument("url", type=PLACE)
@store_options
@click.option(
    "--set", "to_set", multiple=True, type=KEY_VALUE, help="Attribute to set; JSON, or text (repeatable): units=K."
)
@click.option("--unset", multiple=True, help="Name of an attribute to delete (repeatable).")
def attrs(
    url: str,
    path: str,
    storage_options: Mapping[str, Any] | None,
    *,
    as_json: bool,
    to_set: tuple[tuple[str, Any], ...],
    unset: tuple[str, ...],
) -> None:
    """Print the user attributes of the array or group at URL, after changing them.

    Attributes that are not named are kept, those that another process sets at the same time included. Consolidated
    metadata are updated.
    """
    values = dict(to_set)
    if both := sorted(values.keys() & set(unset)):
        raise click.UsageError(f"--set and --unset name the same attributes: {', '.join(both)}")
    with errors_shown():
        node = cm.open(url, path, storage_options=storage_options, mode="r+" if values or unset else "r")
        if missing := sorted(set(unset) - node.attributes.keys()):
            raise click.UsageError(f"--unset names {missing}, where the attributes are {sorted(node.attributes)[:20]}")
        if unset:
            node.del_attributes(*unset)
        if values:
            node.update_attributes(values)
        shown = plain(dict(node.attributes))
    if as_json:
        say(json.dumps(shown, indent=2, allow_nan=False))
    else:
        for name, value in shown.items():
            say(f"{name} = {json.dumps(value, ensure_ascii=False)}")


@main.command(
    short_help="List unfinished jobs of a store.",
    epilog=examples("chunkmill jobs s3://bucket/archive.zarr", "chunkmill jobs --watch archive.zarr"),
)
@click.argument("url", type=PLACE)
@storage_option("--option", "storage_options", "")
@JSON_FLAG
@click.option("--watch", is_flag=True, help="List them again every 10 seconds, until none is left.")
@click.option("--discard", is_flag=True, help="Drop those whose clients have died, with what is on record.")
def jobs(url: str, storage_options: Mapping[str, Any] | None, *, as_json: bool, watch: bool, discard: bool) -> None:
    """List the jobs that write to the store at URL and have not ended, of any process.

    A job is running while its client is alive. An interrupted one resumes when it is run again. With --discard, the
    client of a job that is silent is watched for some 20 seconds first; jobs that are running stay.
    """
    with errors_shown():
        found = cm.jobs(url, storage_options=storage_options)
        for job in found if discard else ():
            with suppress(JobError):  # it is running, and is listed
                job.discard()
        found = cm.jobs(url, storage_options=storage_options) if discard else found
    if as_json:
        say(json.dumps([job.to_dict() for job in found], indent=2))
        return
    while found:
        for job in found:
            say(str(job))
        if not watch:
            return
        time.sleep(_WATCH_SECONDS)
        with errors_shown():
            found = cm.jobs(url, storage_options=storage_options)
    say("no unfinished jobs")


_WATCH_SECONDS = 10.0  # heartbeats tell no more often


@main.command(
    short_help="Resume an unfinished job of a store.",
    epilog=examples("chunkmill resume s3://bucket/archive.zarr", "chunkmill resume archive.zarr --path t2m"),
)
@click.argument("url", type=PLACE)
@click.option("--path", help="Path of the node that the job writes, where there are several jobs.")
@storage_option("--option", "storage_options", "")
@storage_option("--source-option", "source_storage_options", " of the source; those of the target by default")
@run_options
def resume(url: str, path: str | None, *, scheduler: str, progress: bool | None, as_json: bool, **options: Any) -> None:
    """Resume the unfinished convert, rechunk or pyramid that writes to the store at URL, with its own arguments.

    What is done stays done. The workers may be others than those that began it.
    """
    with scheduled(scheduler, progress=progress):
        report = cm.resume(url, path, **options)
    show(report, as_json=as_json)


for command in (convert, rechunk, pyramid, refs, scan, doctor):
    main.add_command(command)


@main.command(
    short_help="Compare two arrays or groups.",
    epilog=examples("chunkmill verify volume.n5 volume.zarr", "chunkmill verify a.zarr b.zarr --sample 0.01"),
)
@click.argument("a", type=PLACE)
@click.argument("b", type=PLACE)
@click.option("--path-a", default="", help="Path of the node inside A.")
@click.option("--path-b", default="", help="Path of the node inside B.")
@region_option("Compare B with this region of A")
@CONSOLIDATED
@click.option("--sample", type=click.FloatRange(0, 1, min_open=True), help="Compare this share of the blocks only.")
@storage_option("--option", "storage_options", " of A (and of B)")
@storage_option("--option-b", "storage_options_b", " of B")
@run_options
def verify(
    a: str,
    b: str,
    *,
    path_a: str,
    path_b: str,
    consolidated: bool | None,
    scheduler: str,
    progress: bool | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare two arrays or groups bit for bit, whatever chunks and codecs hold them; exit code 1 when they differ.

    --consolidated is of A.
    """
    with scheduled(scheduler, progress=progress):
        first = viewed((a, path_a), consolidated, options["storage_options"])
        report = cm.verify(first, (b, path_b), **options)
    show(report, as_json=as_json)
    sys.exit(0 if report.equal else 1)


@main.command(
    short_help="Find damaged chunks and leftovers.",
    epilog=examples("chunkmill check archive.zarr", "chunkmill check --repair --json s3://bucket/archive.zarr"),
)
@click.argument("url", type=PLACE)
@click.option("--path", default="", help="Path of the node inside the store.")
@storage_option("--option", "storage_options", "")
@click.option("--repair", is_flag=True, help="Remove leftovers, write metadata that are stale or missing.")
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
