"""Draw the pictures of the documentation: ``python docs/pictures.py`` writes them to ``docs/images``.

They are drawn from arrays, plans and reports that chunkmill makes here, so that they show what it does. A test compares
the files with what this draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import chunkmill as cm
import dask
import dask.array as da
import numpy as np
from dask.dot import to_graphviz
from pygraphviz import AGraph

FOLDER = Path(__file__).parent / "images"

ORANGE, BLUE, GREEN, GREY = "#e8a25a", "#5a9bd4", "#6fb36f", "#9a9a9a"
TASKS = ("#e8a25a", "#5a9bd4", "#6fb36f", "#c98bb9", "#d6c14f", "#7cc4c4")
CELL = 16  # pixels of an element


def svg(width: float, height: float, shapes: Sequence[str], title: str) -> str:
    """Return a picture that takes the colour of the text around it; as a file, that of the reader's scheme."""
    scheme = "svg.page{color:#222}@media(prefers-color-scheme:dark){svg.page{color:#ddd}}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {width:g} {height:g}" '
        f'role="img" aria-label="{escape(title)}" font-family="sans-serif" font-size="13">'
    )
    style = f"<style>{scheme}</style>"
    return "\n".join([head, style, *shapes, "</svg>"]) + "\n"


def rect(
    x: float,
    y: float,
    w: float,
    h: float,
    fill: str = "none",
    width: float = 1,
    opacity: float = 0.55,
) -> str:
    """Return a rectangle, outlined in the colour of the text."""
    paint = (
        f'fill="{fill}" fill-opacity="{opacity}"'
        if fill != "none"
        else 'fill="none"'
    )
    return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" {paint} stroke="currentColor" stroke-width="{width}"/>'


def text(
    x: float,
    y: float,
    words: str,
    anchor: str = "middle",
    size: float = 13,
    weight: str = "normal",
) -> str:
    """Return a line of text."""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size:g}" font-weight="{weight}" '
        f'fill="currentColor">{escape(words)}</text>'
    )


def arrow(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    label: str = "",
    dash: bool = False,
) -> Iterator[str]:
    """Yield a line with a head, and a label next to it."""
    dashed = ' stroke-dasharray="5 4"' if dash else ""
    yield f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" stroke="currentColor" stroke-width="1.5" fill="none"{dashed}/>'
    dx, dy = x2 - x1, y2 - y1
    n = (dx * dx + dy * dy) ** 0.5
    ux, uy = dx / n, dy / n
    head = (
        (x2, y2),
        (x2 - 9 * ux + 4 * uy, y2 - 9 * uy - 4 * ux),
        (x2 - 9 * ux - 4 * uy, y2 - 9 * uy + 4 * ux),
    )
    yield f'<polygon points="{" ".join(f"{x:g},{y:g}" for x, y in head)}" fill="currentColor"/>'
    if label:
        yield text(
            (x1 + x2) / 2,
            min(y1, y2) - 6 if dy == 0 else (y1 + y2) / 2,
            label,
            size=12,
        )


# --------------------------------------------------------------------------------------------------------------------
# Store key, chunk, shard; and which store keys a region covers


def store_keys() -> str:
    """Draw a sharded array with the names of its store keys, and a region that covers some of them partly."""
    array = cm.create_array(
        "memory://pictures-keys",
        "t2m",
        shape=(16, 24),
        dtype="f4",
        chunks=(4, 4),
        shards=(8, 8),
        overwrite=True,
    )
    region = (slice(0, 12), slice(8, 20))
    array[region] = 1
    keys, chunks = array.write_layout.grid, array.read_layout.grid
    left, top = 16, 34
    shapes = [
        text(left + 12 * CELL, 20, f"array, shape {array.shape}", weight="bold")
    ]
    whole = {overlap.coords: overlap.whole for overlap in keys.overlaps(region)}
    for coords in keys.all_coords():
        rows, columns = keys.region(coords)
        x, y = left + columns.start * CELL, top + rows.start * CELL
        w, h = (
            (columns.stop - columns.start) * CELL,
            (rows.stop - rows.start) * CELL,
        )
        fill = (GREEN if whole[coords] else ORANGE) if coords in whole else GREY
        shapes += [
            rect(x, y, w, h, fill, 2.4, 0.5 if coords in whole else 0.12),
            text(
                x + w / 4,
                y + h / 4 + 5,
                array.metadata.chunk_keys.encode(coords),
                weight="bold",
            ),
        ]
    shapes += [
        rect(left + j * CELL, top + i * CELL, 4 * CELL, 4 * CELL, width=0.6)
        for i, j in product(
            range(0, 16, chunks.chunk_shape[0]),
            range(0, 24, chunks.chunk_shape[1]),
        )
    ]
    shapes.append(
        f'<rect x="{left + 8 * CELL}" y="{top}" width="{12 * CELL}" height="{12 * CELL}" fill="none" '
        'stroke="#c0392b" stroke-width="3" stroke-dasharray="8 4"/>'
    )
    # below the array, so that the picture is narrow enough for a phone
    below = top + 16 * CELL + 28
    legend = (
        ("thin lines", f"chunks {array.chunks}: encoded and read one by one"),
        ("thick lines", f"shards {array.shards}: a store key each, the least"),
        ("", "that can be replaced"),
        ("dashed", "a region that is written"),
    )
    for n, (name, words) in enumerate(legend):
        shapes += [
            text(left, below + 22 * n, name, "start", weight="bold"),
            text(left + 86, below + 22 * n, words, "start"),
        ]
    n_whole = sum(whole.values())
    for n, (fill, words) in enumerate(
        (
            (GREEN, f"covered whole: {n_whole} key, replaced"),
            (
                ORANGE,
                f"covered partly: {len(whole) - n_whole} keys, read, changed, replaced",
            ),
            (GREY, "not touched"),
        )
    ):
        y = below + 76 + 26 * n
        shapes += [
            rect(left, y, 18, 18, fill, 1, 0.12 if fill == GREY else 0.5),
            text(left + 28, y + 14, words, "start"),
        ]
    return svg(
        left + 24 * CELL + 16,
        below + 158,
        shapes,
        "A sharded array: store keys, shards, chunks, and a region",
    )


# --------------------------------------------------------------------------------------------------------------------
# Dask blocks to store keys


def write_layout() -> str:
    """Draw the blocks of a dask array, and the tasks that write an array with other borders."""
    x = da.ones((12, 16), chunks=(5, 6))
    report = cm.to_store(
        x, "memory://pictures-write", chunks=(4, 4), shards=(4, 8), mode="w"
    )
    array = cm.open_array("memory://pictures-write")
    keys = array.write_layout.grid
    left, top, cell = 16.0, 34.0, 17.0
    right = left + 16 * cell + 190
    shapes = [
        text(
            left + 8 * cell,
            20,
            f"{x.npartitions} blocks of a Dask array",
            weight="bold",
        ),
        text(
            right + 8 * cell,
            20,
            f"{report.n_keys} store keys, each written by one task",
            weight="bold",
        ),
    ]
    rows, columns = (
        [0, *(sum(lengths[: i + 1]) for i in range(len(lengths)))]
        for lengths in x.chunks
    )
    shapes += [
        rect(
            left + b * cell,
            top + a * cell,
            (d - b) * cell,
            (c - a) * cell,
            GREY,
            1.2,
            0.25,
        )
        for a, c in pairwise(rows)
        for b, d in pairwise(columns)
    ]
    for n, (i, j) in enumerate(product(*map(range, keys.grid_shape))):
        h, w = keys.chunk_shape
        fill = TASKS[n % len(TASKS)]
        at = (j * w * cell, i * h * cell)
        outline = f'stroke="{fill}" stroke-width="3" fill="none"'
        shapes += [
            f'<rect x="{left + at[0] + 3:g}" y="{top + at[1] + 3:g}" width="{w * cell - 6:g}" height="{h * cell - 6:g}" {outline}/>',
            rect(
                right + at[0], top + at[1], w * cell, h * cell, fill, 2.4, 0.6
            ),
            text(
                right + at[0] + w * cell / 4,
                top + at[1] + h * cell / 2 + 5,
                array.metadata.chunk_keys.encode((i, j)),
                weight="bold",
            ),
        ]
    shapes += [
        rect(right + j * cell, top + i * cell, 4 * cell, 4 * cell, width=0.6)
        for i, j in product(range(0, 12, 4), range(0, 16, 4))
    ]
    middle = top + 6 * cell
    shapes += arrow(
        left + 16 * cell + 22, middle, right - 22, middle, "regroup"
    )
    caption = f"{report.n_regrouped} of {x.npartitions} blocks are cut or joined; store keys that are written in part: {report.n_partial}"
    shapes.append(
        text((left + right + 16 * cell) / 2, top + 12 * cell + 28, caption)
    )
    return svg(
        right + 16 * cell + 16,
        top + 12 * cell + 42,
        shapes,
        "Blocks of a Dask array are regrouped: one task writes each store key",
    )


# --------------------------------------------------------------------------------------------------------------------
# The graphs of a read and a write, as x.visualize() draws them


def graph(collection: Any, title: str) -> str:
    """Draw the graph of a collection: tasks are circles, their results boxes, with the labels that Dask gives them."""
    tasks = dict(sorted(collection.dask.items(), key=str))
    nodes = AGraph(string=to_graphviz(tasks).source)
    names = {node: f"{i:03}" for i, node in enumerate(nodes.nodes())}
    placed = AGraph(directed=True, rankdir="BT", nodesep=0.15, ranksep=0.3)
    size = {"fixedsize": True, "width": 0.95, "height": 0.4}
    for name in names.values():  # without labels, which depend on fonts
        placed.add_node(name, shape="box", label="", **size)
    placed.add_edges_from(
        sorted((names[a], names[b]) for a, b in nodes.edges())
    )
    plain = placed.draw(format="plain", prog="dot").decode().splitlines()
    width, height = (72 * float(word) for word in plain[0].split()[2:])
    places = {}
    for words in map(str.split, plain):
        if words[0] == "node":
            x, y = (72 * float(word) for word in words[2:4])
            places[words[1]] = round(x) + 4, round(height - y) + 4
    shapes: list[str] = []
    for node, name in names.items():
        x, y = places[name]
        outline = f'stroke="currentColor" fill="{BLUE}" fill-opacity="0.35"'
        if node.attr["shape"] == "circle":
            shapes.append(
                f'<ellipse cx="{x}" cy="{y}" rx="34" ry="14" {outline}/>'
            )
        else:
            shapes.append(rect(x - 34, y - 14, 68, 28, ORANGE, 1, 0.35))
        shapes.append(text(x, y + 4, node.attr["label"] or "", size=12))
    for a, b in sorted(
        nodes.edges(), key=lambda edge: [names[each] for each in edge]
    ):
        (x1, y1), (x2, y2) = places[names[a]], places[names[b]]
        shapes += arrow(x1, y1 - 14, x2, y2 + 14)
    return svg(round(width) + 8, round(height) + 8, shapes, title)


def read_graph() -> str:
    """Draw the graph of a read."""
    cm.to_store(da.ones((8, 8), chunks=4), "memory://pictures-read", mode="w")
    return graph(
        cm.from_store("memory://pictures-read"),
        "Graph of a read: a task for each store key",
    )


def write_graph() -> str:
    """Draw the graph of a write of blocks that are not store keys."""
    later = cm.to_store(
        da.ones((8, 12), chunks=(5, 6)),
        "memory://pictures-graph",
        "t2m",
        chunks=(4, 4),
        mode="w",
        compute=False,
    )
    return graph(later, "Graph of a write: a task for each store key")


# --------------------------------------------------------------------------------------------------------------------
# Plan and journal


def plan_and_journal() -> str:
    """Draw what a job does, with the stages of a plan that is made here."""
    x = da.ones((240, 64, 64), chunks=(1, 64, 64))
    cm.to_store(x, "memory://pictures-maps", mode="w")
    plan = cm.plan_rechunk(
        "memory://pictures-maps",
        "memory://pictures-series",
        chunks=(-1, 8, 8),
        strategy="spill",
    )
    shapes: list[str] = []
    width, height, gap, top = 150.0, 58.0, 42.0, 40.0
    boxes = [("plan", "costs; nothing is written", GREY)]
    boxes += [
        (f"stage {stage.name}", "independent tasks", BLUE)
        for stage in plan.stages
    ]
    boxes += [("publish", "the target becomes visible", GREEN)]
    for n, (name, words, fill) in enumerate(boxes):
        left = 16 + n * (width + gap)
        shapes += [
            rect(left, top, width, height, fill, 1.2, 0.35),
            text(left + width / 2, top + 24, name, weight="bold"),
            text(left + width / 2, top + 44, words, size=11),
        ]
        if n:
            shapes += arrow(
                left - gap + 2, top + height / 2, left - 2, top + height / 2
            )
    total = 16 * 2 + len(boxes) * width + (len(boxes) - 1) * gap
    below = top + height + 70
    first, last = (
        16 + width + gap,
        16 + len(plan.stages) * (width + gap) + width,
    )
    shapes += [
        rect(first, below, last - first, 44, ORANGE, 1.2, 0.35),
        text(
            (first + last) / 2,
            below + 19,
            "journal, next to the target",
            weight="bold",
        ),
        text(
            (first + last) / 2,
            below + 36,
            "fingerprint of the plan, heartbeat, tasks that are done",
            size=11,
        ),
    ]
    for n in range(1, 1 + len(plan.stages)):
        left = 16 + n * (width + gap) + width / 2
        shapes += [
            *arrow(left - 20, top + height + 2, left - 20, below - 2),
            *arrow(
                left + 20, below - 2, left + 20, top + height + 2, dash=True
            ),
        ]
    shapes += [
        text(first + width / 2 - 28, below - 30, "done", "end", 12),
        text(
            first + width / 2 + 28,
            below - 30,
            "resume: skip what is done",
            "start",
            12,
        ),
    ]
    return svg(
        total,
        below + 60,
        shapes,
        "A job: plan, stages of tasks, journal, publication",
    )


# --------------------------------------------------------------------------------------------------------------------
# What the tutorials end with


def image_levels() -> str:
    """Draw the largest values along z of the levels that the tutorial of an image makes."""
    z, y, x = np.ogrid[:32, :128, :128]
    cells = np.zeros((32, 128, 128), "i8")
    for n in range(40):
        center = 7 * n % 32, 53 * n % 128, 29 * n * n % 128
        distance = (4 * (z - center[0])) ** 2 + (y - center[1]) ** 2
        cells = np.maximum(
            cells, (8 + n % 9) ** 2 - distance - (x - center[2]) ** 2
        )
    cm.pyramid(
        cells.astype("u2"),
        "memory://pictures-image",
        levels=4,
        scale=(2, 0.5, 0.5),
        factors="isotropic",
        overwrite=True,
    )
    image = cm.open_group("memory://pictures-image").multiscales[0]
    side, shapes = 256.0, []
    for n, level in enumerate(list(image)[:3]):
        left, shape = 16 + n * (side + 20), level.array.shape
        shapes.append(rect(left, 34, side, side, "#000", opacity=1))
        shapes += greys(level.array[...].max(axis=0), left, 34, side)
        words = f"level {n}: {shape}"
        shapes.append(text(left + side / 2, 22, words, weight="bold"))
    return svg(32 + 3 * side + 40, 34 + side + 16, shapes, "Levels of an image")


def greys(plane: Any, left: float, top: float, side: float) -> Iterator[str]:
    """Yield a path for each of six greys: the runs of a plane's elements."""
    size = side / len(plane)
    steps = (plane.astype("i8") * 6) // (int(plane.max()) + 1)
    for grey in range(1, 6):
        runs = []
        for i, row in enumerate(steps == grey):
            edges = np.flatnonzero(np.diff(row, prepend=False, append=False))
            runs += [
                f"M{j} {i}h{k - j}v1h{j - k}z"
                for j, k in zip(edges[::2], edges[1::2], strict=True)
            ]
        place = f"translate({left:g} {top:g}) scale({size:g})"
        value = 51 * grey
        yield (
            f'<path transform="{place}" fill="rgb({value},{value},{value})" '
            f'shape-rendering="crispEdges" d="{"".join(runs)}"/>'
        )


def archive_series() -> str:
    """Draw the series that the tutorial of an archive reads."""
    days, lat = np.arange(365), np.linspace(-80, 80, 17)
    season = np.cos(2 * np.pi * (days - 200) / 365)
    t2m = 300 - 0.005 * lat**2 + season[:, None] * lat / 5
    cm.to_store(
        t2m.astype("f4"), "memory://pictures-archive", chunks=(1, 17), mode="w"
    )
    cm.rechunk(
        "memory://pictures-archive",
        "memory://pictures-years",
        chunks=(-1, 6),
        overwrite=True,
    )
    stored = cm.open_array("memory://pictures-years")
    left, top, width, height, low, high = 56.0, 16.0, 600.0, 240.0, 272.0, 304.0

    def y_of(kelvin: float) -> float:
        return top + height * (high - kelvin) / (high - low)

    shapes = [rect(left, top, width, height)]
    shapes += [
        text(left - 8, y_of(kelvin) + 4, f"{kelvin} K", "end", 12)
        for kelvin in range(275, 305, 5)
    ]
    for month in range(12):
        x = left + width * (month + 0.5) / 12
        shapes.append(text(x, top + height + 18, "JFMAMJJASOND"[month]))
    for degrees, colour in ((50, ORANGE), (0, GREEN), (-50, BLUE)):
        series = stored[:, int((degrees + 80) / 10)]
        points = " ".join(
            f"{left + width * day / 365:.1f},{y_of(float(series[day])):.1f}"
            for day in range(0, 365, 4)
        )
        shapes += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="3"/>',
            text(
                left + width + 10,
                y_of(float(series[-1])) + 4,
                f"{degrees}°",
                "start",
            ),
        ]
    return svg(
        left + width + 60, top + height + 32, shapes, "Three series of a year"
    )


PICTURES = {
    "store_keys": store_keys,
    "write_layout": write_layout,
    "read_graph": read_graph,
    "write_graph": write_graph,
    "plan_and_journal": plan_and_journal,
    "image_levels": image_levels,
    "archive_series": archive_series,
}


def drawn() -> dict[str, str]:
    """Return the files of the pictures: to be put into pages, and one for the README."""
    with dask.config.set(scheduler="synchronous"):
        files = {f"{name}.svg": draw() for name, draw in PICTURES.items()}
    files["readme.svg"] = files["write_layout.svg"].replace(
        'class="picture"', 'class="page"'
    )
    return files


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in drawn().items():
        (FOLDER / name).write_text(content, "utf-8")
