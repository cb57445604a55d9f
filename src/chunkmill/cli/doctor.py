"""The command ``chunkmill doctor``: print `chunkmill.checks.doctor`'s report. Its own module, since it imports late."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from chunkmill.cli.options import JSON_FLAG, PLACE, examples, scheduled, show, storage_option

__all__ = ["doctor"]


@click.command(
    short_help="Examine versions, a store, a cluster.",
    epilog=examples("chunkmill doctor", "chunkmill doctor s3://bucket/archive.zarr --scheduler tcp://host:8786 --json"),
)
@click.argument("url", type=PLACE, required=False)
@storage_option("--option", "storage_options", "")
@click.option("--scheduler", default="threads", show_default=True, help="Address of a cluster's scheduler.")
@JSON_FLAG
def doctor(url: str | None, storage_options: Mapping[str, Any] | None, *, scheduler: str, as_json: bool) -> None:
    """Print versions, and what is slow or unsafe about the store at URL and the workers of a cluster, and why.

    A scratch key is written to the store and deleted again: it shows whether conditional writes are refused as they
    must be, and how long a request takes. Exit code 1 when something was found.
    """
    from chunkmill.checks.doctor import doctor as examine  # noqa: PLC0415 - slow to import

    with scheduled(scheduler, progress=False):
        report = examine(url, storage_options=storage_options)
    show(report, as_json=as_json)
    sys.exit(0 if report.ok else 1)
