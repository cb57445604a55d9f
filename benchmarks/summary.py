"""``python -m benchmarks.summary``: write the documentation's tables of figures from ``benchmarks/results/``.

`LINES` chooses which cases the page shows, and which contender is in which column; every figure is the median of a
saved result, and cases without a result are left out. Where another library is faster, the case is listed whether
`LINES` has it or not.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import RESULTS, duration

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
REPOSITORY = "https://github.com/chunkmill/chunkmill/blob/main"
BEGIN, END = "<!-- figures: python -m benchmarks.summary -->", "<!-- end of figures -->"
README = PAGE.parents[1] / "README.md"
SCALE = "<!-- scale: python -m benchmarks.summary -->", "<!-- end of scale -->"
FIGURES = BEGIN, END
PEERS = "<!-- faster peers: python -m benchmarks.summary -->", "<!-- end of faster peers -->"
DETAILS = Path(__file__).parent / "README.md"
HEAD = ("work", "chunkmill", "zarr-python", "TensorStore", "others")


@dataclass(frozen=True)
class Line:
    """A row of the table: a case of a benchmark, and its contenders by column."""

    label: str
    file: str
    benchmark: str
    case: str
    ours: str
    zarr: str = ""
    tensorstore: str = ""
    others: tuple[tuple[str, str], ...] = ()


_DASK = {"ours": "chunkmill", "zarr": "dask + zarr-python", "tensorstore": "dask + tensorstore"}
_RECHUNK = {"ours": "chunkmill", "tensorstore": "tensorstore", "others": (("dask rechunk", "Dask"),)}
_CONVERT = {
    "ours": "chunkmill",
    "zarr": "dask + zarr-python",
    "tensorstore": "tensorstore",
    "others": (("cp -r", "`cp -r`"),),
}
_REFERENCES = {"ours": "chunkmill", "others": (("fsspec + zarr-python", "fsspec + zarr-python"),)}
_REGION = {"ours": "chunkmill, unaligned", "zarr": "da.store, its lock", "tensorstore": "tensorstore"}
_CLUSTER = {"ours": "chunkmill", "others": (("empty tasks of Dask", "Dask's empty tasks"),)}
_FAR = "20 ms, 300 chunks of 256 KiB, two threads"
_BARE = ("bare loop", "obstore's bare loop")
LINES = (
    Line("read and sum, zstd chunks of 1 MiB", "read", "read, sum", "v3 zstd, 1 MiB", **_DASK),
    Line("the same, chunks of 64 KiB", "read", "read, sum", "v3 zstd, 64 KiB", **_DASK),
    Line("the same, 64 KiB in shards of 2 MiB", "read", "read, sum", "v3 sharded zstd, 64 KiB in 2 MiB", **_DASK),
    Line(
        "the same, N5 gzip, 1 MiB", "read", "read, sum", "N5 gzip, 1 MiB", "chunkmill",
        tensorstore="dask + tensorstore", others=(("dask + z5py", "z5py"),),
    ),
    Line("`a[...]`, zstd, 1 MiB", "read", "read, all", "v3 zstd, 1 MiB", "chunkmill a[...]", tensorstore="tensorstore"),
    Line("write, zstd, 1 MiB", "write", "write", "v3 zstd, 1 MiB", **_DASK),
    Line("write, 64 KiB in shards of 2 MiB", "write", "write", "v3 sharded zstd, 64 KiB in 2 MiB", **_DASK),
    Line("write an unaligned region, 1 MiB", "locks", "region", "v2 zstd, 1023 KiB, 2 threads", **_REGION),
    Line("rechunk 2 GiB, images to series, zstd", "rechunk", ".*", "images to series, zstd, 2048 MiB", **_RECHUNK),
    Line(
        "the same, cubes", "rechunk", ".*", r"\(64, 64, 64\) to \(128, 128, 16\), zstd, 2048 MiB", **_RECHUNK,
    ),
    Line("convert 1 GiB, v2 to v3, 1 MiB", "convert", ".*", "v2 blosc to v3 blosc, 1 MiB, 1024 MiB", **_CONVERT),
    Line("the same, into shards", "convert", ".*", "v3 zstd to shards of 16 MiB, 1 MiB, 1024 MiB", **_CONVERT),
    Line(
        "levels of 2 GiB uint16, means of 2³", "pyramid", "pyramid", "uint16, 1024³, mean of 2 x 2 x 2", "chunkmill",
        zarr="da.coarsen + zarr-python", tensorstore="tensorstore", others=(("bare loop", "two plain threads"),),
    ),
    Line(
        "build the graph of 10⁶ chunks", "graph", "graph", r"10\^6 chunks, open and build", "chunkmill",
        zarr="da.from_zarr",
    ),
    Line(
        "read and sum 300 chunks on S3, 20 ms", "remote", "remote, read", _FAR, "chunkmill",
        zarr="dask + zarr-python + obstore", others=(('xarray engine="zarr" + obstore', "xarray"), _BARE),
    ),
    Line(
        "the same, `a[...]`", "remote", "remote, read", _FAR, "chunkmill a[...]",
        zarr="zarr-python + obstore z[...]", tensorstore="tensorstore", others=(_BARE,),
    ),
    Line(
        "write them", "remote", "remote, write", _FAR, "chunkmill", zarr="dask + zarr-python + obstore",
        tensorstore="tensorstore", others=(('xarray engine="zarr" + obstore', "xarray"), _BARE),
    ),
    Line("open 10⁶ references, JSON", "references", "references, open", "JSON, 1,000,000", **_REFERENCES),
    Line(
        "read 10⁴ chunks by reference", "references", "references, read through Dask", "JSON, 1,000,000", **_REFERENCES
    ),
    Line(
        "`open_dataset`, 1000 variables", "open", "open, on disk", "v3, 1000 variables, consolidated", "chunkmill",
        zarr="engine='zarr'",
    ),
    Line(
        "the same, not consolidated", "open", "open, on disk", "v3, 1000 variables, not consolidated", "chunkmill",
        zarr="engine='zarr'",
    ),
    Line("scheduler's CPU a task, 200 workers: convert", "clusters", "clusters", "200 workers, convert", **_CLUSTER),
    Line("the same, write", "clusters", "clusters", "200 workers, write", **_CLUSTER),
)  # fmt: skip


def table(results: Path = RESULTS) -> str:
    """Return the table, and below it when each file was made."""
    rows, dates = _rows(LINES, results)
    made = ", ".join(f"[{name}]({REPOSITORY}/benchmarks/results/{name}.md) {date}" for name, date in dates.items())
    return "\n".join(["", *_table(HEAD, rows), "", f"Medians; runs: {made}.", ""])


def _rows(lines: tuple[Line, ...], results: Path) -> tuple[list[tuple[str, ...]], dict[str, str]]:
    rows, dates = [], {}
    for line in lines:
        path = results / f"{line.file}.json"
        if not path.exists():
            continue
        document = json.loads(path.read_text())
        seconds = _medians(line, document["rows"])
        if line.ours not in seconds:
            continue
        dates[line.file] = document["about"]["date"].partition(" ")[0]
        others = [f"{label} {duration(seconds[name])}" for name, label in line.others if name in seconds]
        cells = [
            duration(seconds[name]) if name in seconds else "" for name in (line.ours, line.zarr, line.tensorstore)
        ]
        rows.append((line.label, *cells, ", ".join(others)))
    return rows, dates


# the README: one figure for each claim
CLAIMS = {
    "convert 1 GiB, v2 to v3, 1 MiB": "convert 1 GiB of Zarr v2 to v3",
    "rechunk 2 GiB, images to series, zstd": "rechunk 2 GiB of images to time series",
    "write an unaligned region, 1 MiB": "write a region that cuts through chunks, two threads",
    "read and sum 300 chunks on S3, 20 ms": "read and sum 300 chunks on S3, 20 ms away",
}


def claims_table(results: Path = RESULTS) -> str:
    """Return the figures of the README: a median of the saved results for each claim."""
    rows, _ = _rows(tuple(line for line in LINES if line.label in CLAIMS), results)
    shown = [(CLAIMS[label], *figures) for label, *figures in rows]
    (opened,) = [row for row in _scale(results)["rows"] if (row["case"], row["contender"]) == ("10^9 chunks", "open")]
    shown.append(("open an array of 10⁹ chunks", duration(opened["times"][0]), "", "", ""))
    return "\n".join(["", *_table(HEAD, shown), ""])


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows)]


def _medians(line: Line, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the seconds of each contender of a case."""
    found = {}
    for row in rows:
        if re.fullmatch(line.benchmark, row["benchmark"]) and re.fullmatch(line.case, row["case"]):
            found[row["contender"]] = float(np.median(row["times"]))
    return found


# --- multiples of the bare loop

_OF_LOOP = {
    "read, sum": (
        "read", "chunkmill", "chunkmill, chunks='auto'", "chunkmill, two plain threads", "empty tasks",
        "dask + zarr-python", "dask + zarrs", "dask + tensorstore", "dask + z5py",
    ),
    "read, all": (
        "read", "chunkmill a[...]", "zarrs", "tensorstore", "chunkmill", "dask + zarr-python", "dask + zarrs",
        "dask + tensorstore", "dask + z5py",
    ),
    "write": (
        "write", "empty tasks", "chunkmill", "chunkmill, new", "dask + zarr-python", "dask + zarrs",
        "dask + tensorstore", "chunkmill a[...] = x", "tensorstore",
    ),
}  # fmt: skip
"""Benchmark -> the file of its results, and the contenders whose multiples of the bare loop are shown."""


def multiples_table(benchmark: str, results: Path = RESULTS) -> str:
    """Return the median multiples of the bare loop of each case of a benchmark, and when they were measured."""
    file, *contenders = _OF_LOOP[benchmark]
    document = json.loads((results / f"{file}.json").read_text())
    cases: dict[str, dict[str, str]] = {}
    for row in document["rows"]:
        if row["benchmark"] == benchmark and not row["case"].endswith("processes"):
            cases.setdefault(row["case"], {})[row["contender"]] = f"{float(np.median(row['ratios'])):.2f}"
    shown = [each for each in contenders if any(each in found for found in cases.values())]
    rows = [(case, *(found.get(each, "") for each in shown)) for case, found in cases.items()]
    made = f"[{file}](results/{file}.md) {document['about']['date']}"
    return "\n".join(["", *_table(("case", *shown), rows), "", f"Measured: {made}.", ""])


def multiples_markers(benchmark: str) -> tuple[str, str]:
    """Return what stands before and after the table of a benchmark."""
    return f"<!-- {benchmark}: python -m benchmarks.summary -->", f"<!-- end of {benchmark} -->"


# --- where others are faster

_OURS = re.compile(r"chunkmill( a\[.*|, unaligned|, new|, a region a block|, region=| convert| rechunk)?")
_PEER = re.compile(r"(?!chunkmill|xarray alone).*(tensorstore|zarr|z5py|ngff|^da\.|dask rechunk|^xarray)")
_THROUGH_DASK = re.compile(r"dask |da\.|xarray|chunkmill(?! a\[)")
_SLIGHT = 1.05


def peers_table(results: Path = RESULTS) -> str:
    """Return every saved case in which another library takes less time for the same, through Dask or without it.

    Where no peer goes our way, all peers are compared.
    """
    rows = []
    for path in sorted(results.glob("*.json")):
        if path.stem.endswith("-quick") or path.stem == "paired":
            continue
        document = json.loads(path.read_text())
        cases: dict[tuple[str, str], dict[str, float]] = {}
        for row in document["rows"]:
            cases.setdefault((row["benchmark"], row["case"]), {})[row["contender"]] = float(np.median(row["times"]))
        for case, seconds in cases.items():
            for ours in filter(_OURS.fullmatch, seconds):
                peer = _fastest_peer(ours, seconds)
                if peer and (ratio := seconds[ours] / seconds[peer]) > _SLIGHT:
                    both = (ours, duration(seconds[ours]), peer, duration(seconds[peer]))
                    rows.append((*case, *both, f"{ratio:.2f}", path.stem))
    head = ("benchmark", "case", "ours", "time", "faster", "time", "ratio", "run")
    return "\n".join(["", *_table(head, rows), ""])


def _fastest_peer(ours: str, seconds: dict[str, float]) -> str | None:
    peers = [name for name in seconds if _PEER.match(name)]
    through_dask = bool(_THROUGH_DASK.match(ours))
    alike = [name for name in peers if bool(_THROUGH_DASK.match(name)) == through_dask]
    return min(alike or peers, key=seconds.__getitem__, default=None)


def written(page: str, figures: str, markers: tuple[str, str] = (BEGIN, END)) -> str:
    """Return the page with new figures between the markers."""
    begin, end = markers
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{figures}{end}{after}"


# --- from 10^4 to 10^9 chunks


def scale_table(results: Path = RESULTS) -> str:
    """Return time and memory of each job by number of chunks, as a table, and when that was measured."""
    document = _scale(results)
    opened = [row["case"] for row in document["rows"] if row["contender"] == "open"]
    cases = [case for case in opened if case.partition(" ")[0] in _SCALES]
    heads = [case.partition("^")[2].translate(_SUPERSCRIPTS) for case in cases]
    lines = [["chunks", *(f"10{head}" for head in heads)], ["---"] * (len(cases) + 1)]
    for job in dict.fromkeys(row["contender"] for row in document["rows"] if row["case"] in cases):
        rows = {row["case"]: row for row in document["rows"] if row["contender"] == job}
        lines.append([job, *(_time_and_memory(rows[case]) for case in cases)])
    made = f"[scale]({REPOSITORY}/benchmarks/results/scale.md) {document['about']['date']}"
    return "\n".join(["", *("| " + " | ".join(line) + " |" for line in lines), "", f"Measured: {made}.", ""])


_SCALES = ("10^4", "10^6", "10^9")
"""Numbers of chunks that the page shows, of those that are measured."""


def _scale(results: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((results / "scale.json").read_text())
    return document


def _time_and_memory(row: dict[str, Any]) -> str:
    return f"{duration(row['times'][0])}, {row['counts']['peak_bytes'] / 2**20:.2g} MiB"


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹") | {ord(letter): None for letter in " chunks"}


# --- as tests


def test_the_tables_of_multiples_are_those_of_the_saved_results():
    page = DETAILS.read_text()
    for benchmark in _OF_LOOP:
        assert [page.count(marker) for marker in multiples_markers(benchmark)] == [1, 1]
        assert multiples_table(benchmark) in page


def test_every_line_finds_its_figures():
    """Of the saved results: a case or a contender with another name would be missing without an error."""
    for line in LINES:
        path = RESULTS / f"{line.file}.json"
        if path.exists():
            names = {line.ours, line.zarr, line.tensorstore, *(name for name, _ in line.others)} - {""}
            assert names <= _medians(line, json.loads(path.read_text())["rows"]).keys(), line


def test_the_page_has_such_a_table():
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    assert written(page, "x").count("x<!-- end of figures -->") == 1
    assert all(f"| {line.label} |" in page for line in LINES if (RESULTS / f"{line.file}.json").exists())


def test_what_is_faster_is_listed(tmp_path):
    times = {"chunkmill": 2.0, "dask + z5py": 1.0, "chunkmill a[...]": 0.9, "tensorstore": 0.8, "bare loop": 0.1}
    rows = [{"benchmark": "b", "case": "c", "contender": name, "times": [seconds]} for name, seconds in times.items()]
    (tmp_path / "read.json").write_text(json.dumps({"rows": rows}))
    assert peers_table(tmp_path).strip().splitlines()[2:] == [
        "| b | c | chunkmill | 2 s | dask + z5py | 1 s | 2.00 | read |",
        "| b | c | chunkmill a[...] | 900 ms | tensorstore | 800 ms | 1.12 | read |",
    ]


def test_the_details_list_what_is_faster_in_the_saved_results():
    assert peers_table() in DETAILS.read_text()


def test_the_pages_quote_the_saved_figures():
    pages = PAGE.read_text(), README.read_text()
    assert all(pages[0].count(line) == 1 for line in SCALE)
    assert all(pages[1].count(line) == 1 for line in FIGURES)
    if (RESULTS / "scale.json").exists():
        assert scale_table() in pages[0]
        assert claims_table() in pages[1]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), table()))
    DETAILS.write_text(written(DETAILS.read_text(), peers_table(), PEERS))
    for name in _OF_LOOP:
        DETAILS.write_text(written(DETAILS.read_text(), multiples_table(name), multiples_markers(name)))
    if (RESULTS / "scale.json").exists():
        PAGE.write_text(written(PAGE.read_text(), scale_table(), SCALE))
        README.write_text(written(README.read_text(), claims_table(), FIGURES))
