"""The command ``chunkmill jobs``: running, interrupted and dead jobs of a store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

import chunkmill as cm
from chunkmill.cli.options import JSON_FLAG, PLACE, errors_shown, examples, say, storage_option

__all__ = ["jobs"]


@click.command(
    short_help="List unfinished jobs of a store.",
    epilog=examples("chunkmill jobs s3://bucket/archive.zarr", "chunkmill jobs --json archive.zarr"),
)
@click.argument("url", type=PLACE)
@storage_option("--option", "storage_options", "")
@JSON_FLAG
def jobs(url: str, storage_options: Mapping[str, Any] | None, *, as_json: bool) -> None:
    """List the jobs that write to the store at URL and have not ended, of any process.

    A job is running while its client is alive. An interrupted one resumes when it is run again.
    """
    with errors_shown():
        found = cm.jobs(url, storage_options=storage_options)
    if as_json:
        say(json.dumps([job.to_dict() for job in found], indent=2))
        return
    for job in found:
        say(str(job))
    if not found:
        say("no unfinished jobs")
