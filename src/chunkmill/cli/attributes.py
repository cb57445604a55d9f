"""The command ``chunkmill attrs``: print and change user attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

import chunkmill as cm
from chunkmill.cli.options import KEY_VALUE, PLACE, errors_shown, examples, plain, say, store_options

__all__ = ["attrs"]


@click.command(
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

    Attributes that are not named are kept, also those that somebody else sets meanwhile. Consolidated metadata are
    brought up to date.
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
