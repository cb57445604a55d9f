"""Commands on reference sets: make, combine, info; `chunkmill.cli.main` registers them.

Not here: descriptions of sets (`chunkmill.cli.reference_facts`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

import chunkmill as cm
from chunkmill.cli.options import (
    JSON_FLAG,
    PLACE,
    errors_shown,
    examples,
    plain,
    run_options,
    say,
    scheduled,
    show,
    storage_option,
)

__all__ = ["refs"]

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
    from chunkmill.nodes.open_store import open_reference_store  # noqa: PLC0415 - slow to import

    with errors_shown():
        _show_set(open_reference_store(url, storage_options), as_json=as_json)


def _show_set(store: Any, *, as_json: bool) -> None:
    from chunkmill.cli.reference_facts import describe_set, set_text  # noqa: PLC0415 - slow to import

    facts = describe_set(store)
    say(json.dumps(plain(facts), indent=2, allow_nan=False) if as_json else set_text(facts))
