"""Commands on reference sets: make, combine, info, and the description that `info` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import click
import numpy as np

import chunkmill as cm
from chunkmill.cli.options import (
    JSON_FLAG,
    PLACE,
    concat_option,
    errors_shown,
    examples,
    plain,
    run_options,
    say,
    scheduled,
    show,
    storage_option,
)
from chunkmill.display.report import format_bytes, report_text

if TYPE_CHECKING:
    from chunkmill.stores.reference import ReferenceStore

__all__ = ["describe_set", "refs", "scan", "set_text"]

_KIND = click.option(
    "--kind",
    "format",
    type=click.Choice(["json", "parquet"]),
    help="Kind of set; derived from the name of the target by default.",
)
_VERSION = click.option(
    "--version", type=click.IntRange(0, 1), default=1, show_default=True, help="Version of a JSON set."
)
_RECORD_SIZE = click.option("--record-size", default=10_000, show_default=True, help="References in one parquet file.")
_OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace the set at the target.")
_TARGET_OPTION = storage_option("--target-option", "target_storage_options", " of the target")


@click.group(short_help="Reference sets: write, join and describe them.")
def refs() -> None:
    """Write, join and describe reference sets: byte ranges of other files that read as Zarr, as kerchunk makes them.

    Any command that reads a store also reads a set: the path of its JSON file, or of its parquet folder.
    """


@refs.command(
    short_help="Write references to the bytes of a store.",
    epilog=examples(
        "chunkmill refs make archive.zarr archive.json",
        "chunkmill refs make volume.n5 volume.parquet --path s0 --target-path s0",
        "chunkmill refs make set.json set.parquet",
    ),
)
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@click.option("--path", default="", help="Path of the node inside the source.")
@click.option("--target-path", default="", help="Path of the node inside the set; xarray only finds arrays in groups.")
@_KIND
@_VERSION
@_RECORD_SIZE
@click.option("--zarr-format", type=click.IntRange(2, 3), help="Format that describes the arrays; 2 if it can.")
@click.option(
    "--end-blocks",
    type=click.Choice(["inline", "refuse"]),
    default="inline",
    show_default=True,
    help="Store truncated N5 blocks in the set, or fail.",
)
@_OVERWRITE
@storage_option("--option", "storage_options", " of the source (and of the target)")
@_TARGET_OPTION
@run_options
def make(
    source: str,
    target: str,
    *,
    path: str,
    target_path: str,
    scheduler: str,
    progress: bool | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a reference set over the array or group SOURCE to TARGET: no data is copied.

    Readers of kerchunk's sets read it as Zarr. It is valid until somebody writes to the source.
    """
    with scheduled(scheduler, progress=progress):
        show(cm.to_references((source, path), (target, target_path), **options), as_json=as_json)


@refs.command(
    short_help="Join sets along a dimension.",
    epilog=examples(
        "chunkmill refs combine monday.json tuesday.json week.json --dim time",
        "chunkmill refs combine 2024-*.json 2024.parquet --dim time",
    ),
)
@click.argument("sets", nargs=-1, required=True, type=PLACE)
@click.argument("target", type=PLACE)
@click.option("--dim", required=True, help="Name of the dimension.")
@_KIND
@_VERSION
@_RECORD_SIZE
@_OVERWRITE
@storage_option("--option", "storage_options", " of the sets (and of the target)")
@_TARGET_OPTION
@click.option("--dry-run", is_flag=True, help="Describe the set without writing it.")
@JSON_FLAG
def combine(sets: tuple[str, ...], target: str, *, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Join reference SETS along a dimension, in their order, and write the result to TARGET.

    They must agree in everything but the length of that dimension; otherwise nothing is written, and all arrays that
    differ are listed.
    """
    with errors_shown():
        node = cm.concat_references(sets, target=None if dry_run else target, **options)
        _show_set(node.store, as_json=as_json)


@refs.command(
    short_help="Describe a set.",
    epilog=examples("chunkmill refs info archive.json", "chunkmill refs info s3://bucket/set.parquet --json"),
)
@click.argument("url", type=PLACE)
@storage_option("--option", "storage_options", "")
@JSON_FLAG
def info(url: str, storage_options: Mapping[str, Any] | None, *, as_json: bool) -> None:
    """Describe the reference set at URL: its arrays, how many references it has and where they point.

    The whole set is read. `chunkmill info` and `ls` describe its arrays, as in any store.
    """
    from chunkmill.nodes.reference_sets import open_reference_store  # noqa: PLC0415 - slow to import

    with errors_shown():
        _show_set(open_reference_store(url, storage_options), as_json=as_json)


def _show_set(store: Any, *, as_json: bool) -> None:
    facts = describe_set(store)
    say(json.dumps(plain(facts), indent=2, allow_nan=False) if as_json else set_text(facts))


@click.command(
    short_help="Scan netCDF and HDF5 files to a reference set.",
    epilog=examples(
        "chunkmill scan data/2026-*.nc 2026.json --concat time",
        "chunkmill scan 's3://bucket/*.nc' all.parquet --concat time --option anon=true --overwrite",
        "chunkmill scan files.txt all.parquet --concat time --on-error skip --dry-run",
    ),
)
@click.argument("files", nargs=-1, required=True, type=PLACE)
@click.argument("target", type=PLACE)
@concat_option("Dimension along which the files follow one another")
@click.option("--parser", default="auto", show_default=True, help="Kind of the files: hdf5, netcdf3, …")
@click.option(
    "--order",
    type=click.Choice(["values", "names"]),
    default="values",
    show_default=True,
    help="In the order of the values of the coordinate, or of names.",
)
@click.option("--drop", "drop_variables", multiple=True, help="Leave this variable out; may be given several times.")
@click.option(
    "--on-error", type=click.Choice(["raise", "skip"]), default="raise", help="Leave bad files out, and list."
)
@click.option("--records", type=PLACE, help="Folder of records of the files; TARGET.scan by default.")
@click.option(
    "--no-records", is_flag=True, help="Keep no records: a scan that is interrupted begins again from its first file."
)
@click.option("--overwrite", is_flag=True, help="Bring a set up to date: files on record are not parsed again.")
@click.option("--dry-run", is_flag=True, help="Show the plan alone.")
@storage_option("--option", "storage_options", " of the files (and of the target)")
@_TARGET_OPTION
@run_options
def scan(
    files: tuple[str, ...],
    target: str,
    *,
    no_records: bool,
    dry_run: bool,
    scheduler: str,
    progress: bool | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Scan FILES, one task a file, to one reference set at TARGET, which opens like any store; no data is copied.

    FILES are urls, a pattern in quotes, or a .txt file with a url in each line. After an interruption, the same command
    parses only files without a record.
    """
    if no_records:
        options["records"] = False
    with scheduled(scheduler, progress=progress):
        plan = cm.plan_scan(files[0] if len(files) == 1 else files, target, **options)
        show(plan if dry_run else plan.run(), as_json=as_json)


_COLUMNS = ("n_chunks", "n_references", "n_inline", "n_absent")
_FEW = 3  # targets shown


def describe_set(store: Any) -> dict[str, Any]:
    """Return the facts of a set, which is read as a whole."""
    from chunkmill.formats.references.chunk_numbers import split_by_array  # noqa: PLC0415 - slow to import
    from chunkmill.model.references import INLINE  # noqa: PLC0415
    from chunkmill.references.files import in_memory  # noqa: PLC0415
    from chunkmill.stores.capabilities import innermost  # noqa: PLC0415

    store = cast("ReferenceStore", innermost(store))
    references = in_memory(store.references)
    documents, arrays, rows = split_by_array(references)
    found = []
    bytes_referenced = bytes_inline = 0
    used: set[int] = set()
    for path, array in arrays.items():
        own = rows.get(path)
        n_rows = n_inline = 0
        if own is not None:
            is_inline = own.url_ids == INLINE
            n_rows, n_inline = len(own.numbers), int(is_inline.sum())
            bytes_inline += int(own.lengths[is_inline].sum(dtype=np.int64))
            lengths = own.lengths[~is_inline]
            bytes_referenced += int(lengths[lengths > 0].sum(dtype=np.int64))
            used.update(np.unique(own.url_ids[~is_inline]).tolist())
        counts = (array.n_chunks, n_rows - n_inline, n_inline, array.n_chunks - n_rows)
        found.append({"path": path} | dict(zip(_COLUMNS, counts, strict=True)))
    return {
        "url": store.url,
        "layout": "json" if references is store.references else "parquet",
        "n_documents": len(documents),
        "n_references": sum(each["n_references"] for each in found),
        "n_inline": sum(each["n_inline"] for each in found),
        "bytes_referenced": bytes_referenced,  # without references to whole files, whose sizes are not in the set
        "bytes_inline": bytes_inline,
        "n_targets": len(used),
        "targets": [str(references.urls[number]) for number in sorted(used)[:_FEW]],
        "arrays": found,
    }


def set_text(facts: Mapping[str, Any]) -> str:
    """Return the facts of `describe_set` as text."""
    more = ", …" if facts["n_targets"] > _FEW else ""
    rows = [
        ("layout", facts["layout"]),
        ("references", f"{facts['n_references']:,} ({format_bytes(facts['bytes_referenced'])})"),
        ("inline", f"{facts['n_inline']:,} ({format_bytes(facts['bytes_inline'])})"),
        ("targets", f"{facts['n_targets']:,}{': ' if facts['targets'] else ''}{', '.join(facts['targets'])}{more}"),
    ]
    arrays = [(a["path"] or "/", *(f"{a[name]:,}" for name in _COLUMNS)) for a in facts["arrays"]]
    table = [("array", "chunks", "references", "inline", "absent"), *arrays]
    return report_text(f"reference set {facts['url']}", rows, [table])
