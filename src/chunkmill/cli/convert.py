"""Commands that write an array or a group again: convert, rechunk, pyramid; `chunkmill.cli.main` registers them."""

from __future__ import annotations

from typing import Any

import click

import chunkmill as cm
from chunkmill.cli.options import (
    CODECS,
    FORMATS,
    JSON_VALUE,
    NAMES,
    PLACE,
    SHAPE,
    ParamType,
    concat_option,
    examples,
    job_options,
    region_option,
    run_plan,
    whole_job_options,
)

__all__ = ["convert", "pyramid", "rechunk"]


_allow = click.option(
    "--allow",
    multiple=True,
    type=click.Choice(["fill_value", "codecs", "dimension_names", "attributes", "coordinate_systems"]),
    help="What may be lost if the format cannot hold it (repeatable); values never are.",
)


class _ByAxis(ParamType):
    """A number, one for each axis (``1,2,2``), or by dimension (``y=2,x=2``); else the text."""

    name = "by axis"

    def __init__(self, number: type[int | float]) -> None:
        self.number = number

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or value == "isotropic":
            return value
        items = [item.strip() for item in value.split(",")]
        try:
            if any("=" in item for item in items):
                return {name.strip(): self.number(n) for name, n in (item.split("=", 1) for item in items)}
            numbers = tuple(map(self.number, items))
        except ValueError:
            self.fail(f"{value!r} is not by axis: write it as 1,2,2, or as y=2,x=2", param, ctx)
        return numbers[0] if len(numbers) == 1 else numbers


@click.command(
    short_help="Convert to another format.",
    epilog=examples(
        "chunkmill convert volume.n5 volume.zarr --format zarr3 --shards 512,512,512",
        "chunkmill convert scan.n5 scan.zarr --ome 0.5",
        "chunkmill convert 'data/*.nc' all.zarr --concat time --chunks time=720",
        "chunkmill convert old.zarr new.zarr --dry-run --json",
        "chunkmill convert s3://b/x.zarr s3://b/x.n5 --format n5 --scheduler tcp://10.0.0.1:8786",
    ),
)
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@click.option(
    "--format", "format_", type=FORMATS, help="Format of the target; that of the group above it by default, or zarr3."
)
@click.option(
    "--chunks",
    type=SHAPE,
    default="keep",
    show_default=True,
    help="Chunk shape, such as 1,512,512, or lengths by dimension, such as time=-1,lat=32.",
)
@click.option("--shards", type=SHAPE, default="keep", show_default=True, help="Shard shape, or none.")
@click.option("--codecs", type=CODECS, default="keep", show_default=True, help="portable, zstd, gzip, … or JSON.")
@_allow
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
    "--ome",
    type=click.Choice(["0.4", "0.5", "0.6"]),
    help="Describe the images in the source by this version of OME-Zarr.",
)
@concat_option("SOURCE is a pattern of netCDF files that follow one another along this dimension")
@job_options
def convert(
    source: str,
    target: str,
    *,
    path: str,
    target_path: str,
    format_: str | None,
    include: tuple[str, ...],
    **options: Any,
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


@click.command(
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
@click.option("--codecs", type=CODECS, default="keep", show_default=True, help="portable, zstd, gzip, … or JSON.")
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


@click.command(
    short_help="Make levels of lower resolution.",
    epilog=examples(
        "chunkmill pyramid scan.n5 image.zarr --path volume/s0 --format zarr3 --shards 512,512,512",
        "chunkmill pyramid volume.zarr --path scan/0",
        "chunkmill pyramid labels.zarr labels-pyramid.zarr --method mode --factors 1,2,2 --levels 5",
        "chunkmill pyramid scan.n5 image.zarr --factors isotropic --scale z=40,y=4,x=4 --units nanometer",
        "chunkmill pyramid scan.n5 image.zarr --path c0/s0 --join c1/s0 --channels dapi,gfp --format zarr3",
    ),
)
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE, required=False)
@click.option(
    "--factors",
    type=_ByAxis(int),
    default="2",
    show_default=True,
    help="From each level to the next: a number, 1,2,2, y=2,x=2, or isotropic.",
)
@click.option(
    "--levels", type=click.IntRange(1), help="Levels with the first; by default until a chunk holds the last."
)
@click.option(
    "--method",
    type=click.Choice(["mean", "median", "min", "max", "mode", "stride"]),
    default="mean",
    show_default=True,
    help="mode for labels.",
)
@click.option("--format", "format_", type=FORMATS, help="Format of the target; the source's by default.")
@click.option("--chunks", type=SHAPE, default="keep", show_default=True, help="Chunk shape of every level.")
@click.option("--shards", type=SHAPE, default="keep", show_default=True, help="Shard shape, or none.")
@click.option("--codecs", type=CODECS, default="keep", show_default=True, help="zstd, blosc, gzip, raw, or JSON.")
@click.option("--scale", type=_ByAxis(float), help="Length of a voxel: 40,4,4, or z=40,y=4,x=4.")
@click.option("--units", help="Unit of the lengths of axes of space, such as nanometer, or nm.")
@click.option("--translation", type=_ByAxis(float), help="Position of the first voxel, like --scale.")
@region_option("Only this region of the source")
@click.option("--name", help="Name of the image.")
@click.option("--label-of", type=PLACE, help="Write labels of this image to the group labels below it; no TARGET.")
@click.option("--channels", type=NAMES, help="Names of the channels, such as dapi,gfp: described as omero.")
@click.option(
    "--join", multiple=True, help="Path of a further array in SOURCE, joined along a new axis c (repeatable)."
)
@_allow
@click.option(
    "--ome",
    type=click.Choice(["auto", "0.4", "0.5", "0.6", "none"]),
    default="auto",
    show_default=True,
    help="Version of OME-Zarr that describes the levels; auto: 0.4 in Zarr v2, 0.5 in v3, 0.6 where the source is.",
)
@whole_job_options
def pyramid(
    source: str,
    target: str | None,
    *,
    path: str,
    target_path: str,
    format_: str | None,
    ome: str,
    join: tuple[str, ...],
    **options: Any,
) -> None:
    """Write the array SOURCE, or the finest level of an image, and its reductions as the levels of TARGET.

    Without TARGET, the reductions are written to the group of SOURCE, an array whose name ends with 0. Each element is
    read once. The levels appear when all are complete; an interrupted job resumes when the command is run again.
    """
    chosen = options | {"format": format_, "ome": None if ome == "none" else ome}
    where = None if target is None else (target, target_path)
    arrays = [(source, each) for each in (path, *join)]
    run_plan(cm.plan_pyramid, arrays if join else arrays[0], where, chosen)
