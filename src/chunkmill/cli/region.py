"""The option ``--region`` of commands: slices, or ranges by dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from chunkmill.cli.options import Command, ParamType

__all__ = ["region_option"]


class _Region(ParamType):
    """Slices (``0:10,...``), or ranges by dimension (``time=0:10,lat=5:``)."""

    name = "region"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        items = [item.strip() for item in value.strip("()[] ").split(",") if item.strip()]
        try:
            if any("=" in item for item in items):
                named = [item.rsplit("=", 1) for item in items]
                return {name.strip(): _slice(text) for name, text in named}
            return tuple(... if item == "..." else _slice(item) for item in items)
        except ValueError:
            msg = f"{value!r} is not a region: write it as 0:10,20:30 (start:stop for each axis) or time=0:10,lat=5:"
            self.fail(msg, param, ctx)


def _slice(text: str) -> slice:
    start, stop = text.split(":")
    return slice(int(start) if start.strip() else None, int(stop) if stop.strip() else None)


def region_option(text: str) -> Callable[[Command], Command]:
    """Return the option, with the beginning of its help."""
    return click.option(
        "--region", type=_Region(), help=f"{text}, such as 0:10,20:30, or by dimension, time=0:10,lat=5:."
    )
