"""Scan files to a reference set, one task a file, on Dask's scheduler: the public function, and its report.

Not here: parsing (`chunkmill.scans.parse`), joining (`chunkmill.scans.join`), writing (`chunkmill.references.write`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import fsspec
from dask.utils import format_time

from chunkmill.display.report import ReportMixin
from chunkmill.errors import ChunkmillError, ScanError
from chunkmill.nodes.api import open as open_node
from chunkmill.references.write import to_references
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.runtime.stage_runner import run_once
from chunkmill.scans.join import ParsedFile, joined, parsed_file
from chunkmill.scans.parse import Parser, parse_file
from chunkmill.stores.reference import ReferenceStore
from chunkmill.stores.reference_targets import Targets

__all__ = ["ScanReport", "scan"]


@dataclass(frozen=True, repr=False)
class ScanReport(ReportMixin):
    """Report of `chunkmill.scan`.

    Attributes
    ----------
    target
        Url of the reference set.
    n_files
        Files that are in it.
    n_arrays, n_references, n_inline
        Arrays, chunks that are byte ranges of the files, and chunks that are stored in the set.
    skipped
        Url -> reason, of the files that were left out.
    seconds
        Duration.
    """

    target: str
    n_files: int
    n_arrays: int
    n_references: int
    n_inline: int
    skipped: Mapping[str, str]
    seconds: float

    def _title(self) -> str:
        return "scan: done"

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("to", self.target),
            ("files", f"{self.n_files:,}"),
            ("arrays", f"{self.n_arrays:,}"),
            ("referenced", f"{self.n_references:,} chunks"),
            ("inline", f"{self.n_inline:,} chunks"),
            *((("left out", f"{url}: {why}")) for url, why in self.skipped.items()),
            ("seconds", format_time(self.seconds).strip()),
        ]


def scan(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    concat_dim: str | None = None,
    parser: Parser = "auto",
    order: Literal["values", "names"] = "values",
    rewrite_units: bool = False,
    drop_variables: str | Sequence[str] = (),
    on_error: Literal["raise", "skip"] = "raise",
    format: Literal["json", "parquet"] | None = None,  # noqa: A002 - the word of the public face
    zarr_format: Literal[2, 3] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> ScanReport:
    """Scan netCDF and HDF5 files to a reference set, which opens like any store; no data is copied.

    Each file is a task on the current dask scheduler or Client. Parsers are those of VirtualiZarr: the extra
    ``scan``. Files of FITS, TIFF, DMR++ and GRIB are passed to the parsers of VirtualiZarr, virtual-tiff and kerchunk
    where those and what they need are installed; no test here covers them.

    Parameters
    ----------
    urls : str, path or sequence
        Files: a list, a glob (``"s3://bucket/*.nc"``), one file, or a ``.txt`` file with a url in each line.
    target : str or path
        Url of the reference set, as in `to_references`: a name with ``.json`` is one file, others a folder of parquet.
    concat_dim : str, optional
        Name of the dimension along which the files follow one another; needed where there are several.
    parser : str or callable
        ``"auto"``: by the first bytes of each file; a name (``"hdf5"``, ``"netcdf3"``, ``"fits"``, ``"tiff"``,
        ``"grib"``, ``"dmrpp"``); or a function from a url to a reference set or a ``ManifestStore``.
    order : str
        ``"values"``: in the order of the values of the coordinate `concat_dim`, which must not overlap; ``"names"``: in
        the order of the urls.
    rewrite_units : bool
        Write times in the units of the first file where those of others differ; otherwise that is an error.
    drop_variables : str or sequence of str
        Names of variables to leave out, in every file and group.
    on_error : str
        ``"skip"``: leave files out that cannot be parsed, and list them in the report.
    format, zarr_format, overwrite
        As in `to_references`.
    storage_options, target_storage_options : dict, optional
        For the filesystems of the files and of the target, as in fsspec; the target uses those of the files by default.
    progress : bool or str, optional
        Show a bar, as in `Plan.run`.

    Returns
    -------
    ScanReport
        Files, arrays and references, and the files that were left out, with reasons.

    Raises
    ------
    ScanError
        There are no such files; one cannot be parsed; or they do not agree, with files and values. Nothing was written.
    MetadataError
        Arrays of the files differ in chunks, codecs, dtype or scale; lists each.

    Examples
    --------
    >>> import chunkmill as cm, tempfile, xarray as xr
    >>> folder = tempfile.mkdtemp()
    >>> for i in range(2):
    ...     part = xr.Dataset({"v": ("time", [1.0 * i, 2.0])}, {"time": [2 * i, 2 * i + 1]})
    ...     part.to_netcdf(f"{folder}/part-{i}.nc", engine="scipy")
    >>> report = cm.scan(f"{folder}/part-*.nc", f"{folder}/all.json", concat_dim="time")
    >>> report.n_files
    2
    >>> xr.open_dataset(f"{folder}/all.json", engine="chunkmill").v.values
    array([0., 2., 1., 2.])
    """
    start = time.perf_counter()
    for name, value, allowed in (("order", order, ("values", "names")), ("on_error", on_error, ("raise", "skip"))):
        if value not in allowed:
            raise ValueError(f"{name}={value!r}: expected {' or '.join(map(repr, allowed))}")
    found = _files(urls, storage_options)
    if concat_dim is None and len(found) > 1:
        raise TypeError(f"there are {len(found)} files: concat_dim names the dimension along which they follow")
    dropped = (drop_variables,) if isinstance(drop_variables, str) else tuple(drop_variables)
    common = _Common(tuple(found), concat_dim, parser, dict(storage_options or {}), dropped, on_error == "skip")
    stage = Stage("scan", _scan_file, common, range(len(found)), shows=_shown)
    (result,) = run_once([stage], name="scan", arrays=(), progress=progress)
    details = dict(result.details)
    skipped = {found[i]: each for i, each in sorted(details.items()) if isinstance(each, str)}
    files = [each for _, each in sorted(details.items()) if isinstance(each, ParsedFile)]
    if not files:
        raise ScanError(url=found[0], reason=f"no file is left: {skipped[found[0]]}")
    references = files[0].references
    if concat_dim is not None:
        references = joined(files, concat_dim, rewrite_units=rewrite_units, by_name=order == "names")
    source = open_node(ReferenceStore(references, _targets(found[0], storage_options)))
    written = to_references(
        source,
        target,
        format=format,
        zarr_format=zarr_format,
        overwrite=overwrite,
        target_storage_options=storage_options if target_storage_options is None else target_storage_options,
        progress=progress,
    )
    return ScanReport(
        target=written.target,
        n_files=len(files),
        n_arrays=written.n_arrays,
        n_references=written.n_references,
        n_inline=written.n_inline,
        skipped=skipped,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True)
class _Common:
    urls: Sequence[str]
    dim: str | None
    parser: Parser
    storage_options: Mapping[str, Any] = field(repr=False)
    drop_variables: tuple[str, ...]
    skips: bool


def _shown(common: _Common, number: int) -> str:
    return common.urls[number]


def _scan_file(common: _Common, number: int) -> TaskResult:
    """Parse one file; a reason instead, where files that cannot be parsed are left out."""
    url = common.urls[number]
    try:
        references = parse_file(url, common.parser, common.storage_options, common.drop_variables)
        store = ReferenceStore(references, _targets(url, common.storage_options))
        detail: Any = parsed_file(url, references, store, common.dim)
    except ChunkmillError as error:
        if not common.skips:
            raise
        detail = getattr(error, "reason", str(error))
    return TaskResult({"n_files": 1}, details=[(number, detail)])


def _targets(url: str, storage_options: Mapping[str, Any] | None) -> Targets:
    """Return how the files are opened whose references are read while they are scanned: as the user said."""
    protocol = url.partition("://")[0] if "://" in url else "file"
    options = {protocol: dict(storage_options)} if storage_options else None
    return Targets(url, allowed_protocols=("*",), remote_options=options)


def _files(urls: Any, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return the urls of the files, in order; `ScanError` where there are none."""
    if not isinstance(urls, (str, os.PathLike)):
        found = [_absolute(os.fspath(url)) for url in urls]
        if not found:
            raise ScanError(url="", reason="the list of files is empty")
        return found
    url = os.fspath(urls)
    if url.endswith(".txt"):
        with fsspec.open(url, "rt", **(storage_options or {})) as lines:
            return _files([line.strip() for line in lines if line.strip()], storage_options)
    if not set("*?[") & set(url):
        return [_absolute(url)]
    fs, pattern = fsspec.url_to_fs(url, **(storage_options or {}))
    found = [fs.unstrip_protocol(path) for path in sorted(fs.glob(pattern))]
    if not found:
        raise ScanError(url=url, reason="no file matches")
    return [url.removeprefix("file://") if url.startswith("file://") else url for url in found]


def _absolute(url: str) -> str:
    return url if "://" in url else str(Path(url).expanduser().absolute())
