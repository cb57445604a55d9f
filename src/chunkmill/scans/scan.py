"""Scan files to a reference set, one task a file, on Dask's scheduler: the public functions, plan and report.

Not here: parsing (`chunkmill.scans.parse`), what is kept of it (`chunkmill.scans.records`), joining
(`chunkmill.scans.join`), writing (`chunkmill.references.write`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import fsspec
from dask.utils import format_time

from chunkmill.array.threads import in_threads
from chunkmill.display.report import ReportMixin, counted
from chunkmill.errors import ChunkmillError, ScanError
from chunkmill.nodes.api import open_source, with_options_of
from chunkmill.references.files import Repository, SetFile, matching_urls, set_target
from chunkmill.references.write import write_set
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.runtime.stage_runner import JobMonitor, run_once
from chunkmill.scans.join import ParsedFile, Place, joined, parsed_file
from chunkmill.scans.parse import Parser, ScannedFile, open_file, parse_file, targets_of
from chunkmill.scans.records import Records, fingerprint_of, is_record, version_of
from chunkmill.stores.base import REQUESTS_AT_ONCE
from chunkmill.stores.open import open_store
from chunkmill.stores.places import place_of
from chunkmill.stores.reference import ReferenceStore


@dataclass(frozen=True, repr=False)
class ScanReport(ReportMixin):
    """Report of `chunkmill.scan`.

    Attributes
    ----------
    target
        Url of the reference set.
    n_files
        Files that are in it.
    n_parsed
        Files that this scan parsed; of the others, an earlier one had left records.
    n_arrays, n_references, n_inline
        Arrays, chunks that are byte ranges of the files, and chunks that are stored in the set.
    skipped
        Url -> reason, of the files that were left out.
    gaps
        Where a step of the coordinate from file to file is longer than any inside the files.
    records
        Url of the folder of records, by which a scan that is repeated parses only new files; ``None``: none are kept.
    seconds
        Duration.
    """

    target: str
    n_files: int
    n_parsed: int
    n_arrays: int
    n_references: int
    n_inline: int
    skipped: Mapping[str, str]
    gaps: tuple[str, ...]
    records: str | None
    seconds: float

    def _title(self) -> str:
        return "scan: done"

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("to", self.target),
            ("files", f"{self.n_files:,}, {self.n_parsed:,} of them parsed now"),
            ("arrays", f"{self.n_arrays:,}"),
            ("referenced", counted(self.n_references, "chunk")),
            ("inline", counted(self.n_inline, "chunk")),
            *(() if self.records is None else [("records", self.records)]),
            *(("gap", each) for each in self.gaps),
            *((("left out", f"{url}: {why}")) for url, why in self.skipped.items()),
            ("seconds", format_time(self.seconds).strip()),
        ]


@dataclass(frozen=True, repr=False)
class ScanPlan(ReportMixin):
    """Plan of a scan; `run` carries it out, and after an interruption parses only files without a record.

    Attributes
    ----------
    urls
        The files.
    target
        Url of the reference set.
    concat_dim
        Dimensions along which the files follow one another; none for one file.
    records
        Url of the folder of records; ``None``: none are kept.
    n_records
        Records that are there: each of a file, perhaps of a version of it that is old by now.
    """

    urls: tuple[str, ...]
    target: str
    concat_dim: tuple[str, ...]
    records: str | None
    n_records: int
    _parsing: _Parsing = field(repr=False)
    _order: str = field(repr=False)
    _places: Mapping[str, Place] | None = field(repr=False)
    _file: SetFile | Repository = field(repr=False)
    _path: str = field(repr=False)
    _overwrite: bool = field(repr=False)
    _owns_records: bool = field(repr=False)

    def _title(self) -> str:
        return f"plan: scan {counted(len(self.urls), 'file')}"

    def _facts(self) -> list[tuple[str, str]]:
        order = self._order if self._places is None else "the lists"
        return [
            ("from", self.urls[0] if len(self.urls) == 1 else f"{self.urls[0]} … {self.urls[-1]}"),
            ("to", self.target),
            *([("along", f"{', '.join(self.concat_dim)}, in the order of {order}")] if self.concat_dim else ()),
            *(() if self.records is None else [("on record", f"{self.n_records:,} in {self.records}")]),
        ]

    def run(self, *, progress: bool | str | None = None) -> ScanReport:
        """Scan the files and write the set; see `scan`.

        Examples
        --------
        >>> import chunkmill as cm, tempfile, xarray as xr
        >>> folder = tempfile.mkdtemp()
        >>> _ = xr.Dataset({"v": ("x", [1.0, 2.0])}).to_netcdf(f"{folder}/a.nc", engine="scipy")
        >>> plan = cm.plan_scan(f"{folder}/a.nc", f"{folder}/a.json")
        >>> plan.run().n_parsed
        1
        """
        start = time.perf_counter()
        replaces = self._file.check_free(overwrite=self._overwrite)
        found = _scanned(self._parsing, progress)
        files: Sequence[ParsedFile] = _files_of(found)
        gaps: tuple[str, ...] = ()
        references = files[0].references
        if self.concat_dim:
            whole = joined(files, self.concat_dim, by_name=self._order == "names", listed=self._places)
            references, files, gaps = whole.references, whole.files, whole.gaps
        node = open_source(ReferenceStore(references, targets_of(self.urls[0], self._parsing.storage_options)))
        written = write_set(node, self._path, self._file, replaces, progress=progress)
        if self._parsing.records is not None and self._owns_records:
            self._parsing.records.keep([each.record for each in found])
        return ScanReport(
            target=written.target,
            n_files=len(files),
            n_parsed=sum(each.is_new for each in found),
            n_arrays=written.n_arrays,
            n_references=written.n_references,
            n_inline=written.n_inline,
            skipped={each.url: each.why for each in found if each.file is None},
            gaps=gaps,
            records=self.records,
            seconds=time.perf_counter() - start,
        )


@dataclass(frozen=True)
class _Parsing:
    """Files, and how each is parsed; the options of filesystems may hold secrets."""

    urls: Sequence[str]
    dims: Sequence[str]
    storage_options: Mapping[str, Any] = field(repr=False)
    parser: Parser = "auto"
    drop_variables: tuple[str, ...] = ()
    skips: bool = False
    records: Records | None = None


def plan_scan(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str] | Sequence[Any]],
    target: str | os.PathLike[str] | Any,
    *,
    concat_dim: str | Sequence[str] | None = None,
    parser: Parser = "auto",
    order: Literal["values", "names"] = "values",
    drop_variables: str | Sequence[str] = (),
    on_error: Literal["raise", "skip"] = "raise",
    overwrite: bool = False,
    records: str | os.PathLike[str] | Literal[False] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> ScanPlan:
    """Plan a scan: list the files, and see that the target is free; nothing is parsed and nothing written.

    Parameters
    ----------
    urls, target, concat_dim, parser, order, drop_variables, on_error, overwrite, records, storage_options
        As in `scan`.
    target_storage_options
        As in `scan`.

    Returns
    -------
    ScanPlan
        Prints what will be scanned; ``plan.run()`` does it.

    Raises
    ------
    ScanError
        There are no such files.
    StoreError
        Something is at the target already.

    Examples
    --------
    >>> import chunkmill as cm, tempfile, xarray as xr
    >>> folder = tempfile.mkdtemp()
    >>> _ = xr.Dataset({"v": ("x", [1.0, 2.0])}).to_netcdf(f"{folder}/a.nc", engine="scipy")
    >>> plan = cm.plan_scan(f"{folder}/a.nc", f"{folder}/a.json")
    >>> len(plan.urls), plan.n_records
    (1, 0)
    """
    for name, value, allowed in (("order", order, ("values", "names")), ("on_error", on_error, ("raise", "skip"))):
        if value not in allowed:
            raise ValueError(f"{name}={value!r}: expected {' or '.join(map(repr, allowed))}")
    dims = _dims(concat_dim)
    found, places = _placed(urls, dims, storage_options)
    if not dims and len(found) > 1:
        raise TypeError(f"there are {len(found)} files: concat_dim names the dimension along which they follow")
    target_options = storage_options if target_storage_options is None else target_storage_options
    file, path = set_target(target, target_options, overwrite=overwrite)
    file.check_free(overwrite=overwrite)
    dropped = (drop_variables,) if isinstance(drop_variables, str) else tuple(drop_variables)
    kept, n_records = None, 0
    if records is not False and (records is not None or isinstance(file, SetFile)):
        store = open_store(f"{file.url.rstrip('/')}.scan" if records is None else records, target_options)
        kept, n_records = Records(store, fingerprint_of(parser, dims, dropped)), sum(map(is_record, store.list_dir("")))
    return ScanPlan(
        urls=tuple(found),
        target=file.url,
        concat_dim=dims,
        records=None if kept is None else kept.store.url,
        n_records=n_records,
        _parsing=_Parsing(found, dims, dict(storage_options or {}), parser, dropped, on_error == "skip", kept),
        _order=order,
        _places=places,
        _file=file,
        _path=path,
        _overwrite=overwrite,
        _owns_records=records is None,  # a folder that the user names may have records of other scans
    )


@with_options_of(plan_scan)
def scan(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str] | Sequence[Any]],
    target: str | os.PathLike[str] | Any,
    **options: Any,
) -> ScanReport:
    """Scan netCDF and HDF5 files to a reference set, which opens like any store; no data is copied.

    Each file is a task on the current dask scheduler or Client. Parsers are those of VirtualiZarr: the extra
    ``scan``. Files of TIFF, FITS and GRIB2 are parsed by virtual-tiff and kerchunk, where those and what they need are
    installed; an error says which packages that are.

    Parameters
    ----------
    urls : str, path or sequence
        Files: a list, a glob (``"s3://bucket/*.nc"``), one file, or a ``.txt`` file with a url in each line. Nested
        lists, with a level for each dimension of `concat_dim`, say the places of the files themselves.
    target : str, path or icechunk.Repository
        Url of the reference set, as in `to_references`: a name with ``.json`` is one file, others a folder of parquet
        (`to_references` of a set turns one kind into another).
        Or a repository of Icechunk (``"repo|icechunk:"``, or an object of it), perhaps as ``(repository, path)``: the
        chunks become virtual ones, in one commit, whose references the client holds.
    concat_dim : str or sequence of str, optional
        Name of the dimension along which the files follow one another; needed where there are several. Of several
        dimensions (``["time", "lat"]``) the files fill a box: each has its place along all of them, whatever their
        order in `urls`. Times in other units are written in those of the first file, with their bounds; each keeps its
        date. Other calendars are an error.
    parser : str or callable
        Kind of the files: ``"auto"``, by the first bytes of each; a name (``"hdf5"``, ``"netcdf3"``, ``"fits"``,
        ``"tiff"``, ``"grib"``, ``"dmrpp"``); or a function from a url to a reference set or a ``ManifestStore``.
    order : str
        Order of the files: ``"values"``, that of the values of the coordinate `concat_dim`, which must not overlap;
        ``"names"``, that of the urls. Along several dimensions, files with equal values of a coordinate are at one
        place along it, and one of the dimensions may be without a coordinate: along that one the order is that of the
        urls.
    drop_variables : str or sequence of str
        Names of variables to leave out, in every file and group.
    on_error : str
        Treatment of files that cannot be parsed. ``"skip"``: leave them out, and list them in the report.
    overwrite : bool
        As in `to_references`. With ``overwrite=True``, the same call brings a set up to date: it parses only files that
        are new or were written again, by their versions.
    records : str, path or False, optional
        Folder in which a record of each file is kept; ``None``: the url of the target with ``.scan`` at its end, and
        none for a repository of Icechunk; ``False``: none are kept, and a scan that is interrupted begins again from
        its first file. In a folder that is named here, records of other files stay; in the other one they are deleted
        when the set is written.
    storage_options, target_storage_options : dict, optional
        For the filesystems of the files and of the target, as in fsspec; the target uses those of the files by default.

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
    return plan_scan(urls, target, **options).run()


def open_files(
    urls: Any, storage_options: Mapping[str, Any] | None = None, concat_dim: str | Sequence[str] | None = None
) -> ReferenceStore | None:
    """Return the store of the set of one file, or of several, which is not written.

    ``None`` where `urls` names a folder, or a file of another kind.

    Parameters
    ----------
    urls, concat_dim, storage_options
        As in `scan`.
    """
    if concat_dim is None:
        return open_file(urls, storage_options)
    own = dict(storage_options or {})
    dims = _dims(concat_dim)
    found, places = _placed(urls, dims, own)
    files = _files_of(_scanned(_Parsing(found, dims, own), None))
    url = _absolute(urls) if isinstance(urls, str) else f"{found[0]}+{len(found) - 1}"
    return ReferenceStore(joined(files, dims, listed=places).references, targets_of(found[0], own), url=url)


def _shown(parsing: _Parsing, numbers: range) -> str:
    first, last = parsing.urls[numbers[0]], parsing.urls[numbers[-1]]
    return first if first == last else f"{first} … {last}"


def _scanned(parsing: _Parsing, progress: bool | str | None) -> list[_Found]:
    """Parse the files that have no record."""
    urls = parsing.urls
    if parsing.records is not None:
        parsing.records.store.sweep()  # of a scan that was killed (P8)
    n_files = max(1, min(REQUESTS_AT_ONCE, len(urls) // _LEAST_TASKS))
    parts = [range(i, min(i + n_files, len(urls))) for i in range(0, len(urls), n_files)]
    stage = Stage("scan", _scan_files, parsing, parts, shows=_shown)
    with JobMonitor("scan", progress).showing() as monitor:
        (result,) = run_once([stage], monitor, ())
    found = sorted(result.details, key=lambda each: each.number)
    if all(each.file is None for each in found):
        raise ScanError(url=urls[0], reason=f"no file is left: {found[0].why}")
    return found


class _Found(NamedTuple):
    """A file that was scanned, with its number and the name of its record, or why it is left out."""

    number: int
    url: str
    file: ParsedFile | None
    record: str | None = None
    is_new: bool = False
    why: str = ""


def _files_of(found: Sequence[_Found]) -> list[ParsedFile]:
    return [each.file for each in found if each.file is not None]


_LEAST_TASKS = 8  # of a scan of so many files or more


def _scan_files(parsing: _Parsing, numbers: range) -> TaskResult:
    """Parse some files: of many, each task has several under way, which wait for their servers together."""
    parts = [slice(i, i + 1) for i in range(len(numbers))]
    found = in_threads(lambda part: _scan_file(parsing, numbers[part][0]), parts, REQUESTS_AT_ONCE)
    return TaskResult({"n_files": len(numbers), "n_parsed": sum(each.is_new for each in found)}, details=found)


def _scan_file(parsing: _Parsing, number: int) -> _Found:
    """Parse one file that has no record."""
    url, name = parsing.urls[number], None
    file = ScannedFile(url, parsing.storage_options)
    try:
        if parsing.records is not None and (known := version_of(file)) is not None:
            name = parsing.records.name(url, known)
            if (known_file := parsing.records.get(name, url)) is not None:
                return _Found(number, url, known_file, name)
        references = parse_file(file, parsing.parser, parsing.drop_variables)
        parsed = parsed_file(file, references, targets_of(url, parsing.storage_options), parsing.dims)
    except ChunkmillError as error:
        if not parsing.skips:
            raise
        return _Found(number, url, None, why=str(getattr(error, "reason", error)))
    if parsing.records is not None and name is not None:
        parsing.records.put(name, parsed)
    return _Found(number, url, parsed, name, is_new=True)


def _dims(concat_dim: Any) -> tuple[str, ...]:
    if concat_dim is None or isinstance(concat_dim, str):
        return () if concat_dim is None else (concat_dim,)
    dims = tuple(concat_dim)
    if not dims or not all(isinstance(dim, str) for dim in dims) or len(set(dims)) < len(dims):
        raise TypeError(f"concat_dim={concat_dim!r}: expected a name, or a list of different names")
    return dims


def _placed(
    urls: Any, dims: Sequence[str], storage_options: Mapping[str, Any] | None
) -> tuple[list[str], dict[str, Place] | None]:
    """Return the files, and of nested lists, one level a dimension, the place of each."""
    if isinstance(urls, (str, os.PathLike)):
        return _files(urls, storage_options), None
    listed: list[tuple[Place, Any]] = [((i,), each) for i, each in enumerate(urls)]
    if not any(isinstance(each, (list, tuple)) for _, each in listed):
        return _files([each for _, each in listed], storage_options), None
    for _ in dims[1:]:
        if not all(isinstance(each, (list, tuple)) for _, each in listed):
            break
        listed = [((*place, i), below) for place, each in listed for i, below in enumerate(each)]
    if any(isinstance(each, (list, tuple)) for _, each in listed) or len(listed[0][0]) != len(dims):
        raise TypeError(f"nested lists of files need a level for each dimension of concat_dim: {len(dims)}")
    found = _files([each for _, each in listed], storage_options)
    return found, dict(zip(found, (place for place, _ in listed), strict=True))


def _files(urls: Any, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return the urls of the files, in order; `ScanError` where there are none."""
    if not isinstance(urls, (str, os.PathLike)):
        if wrong := [url for url in urls if not isinstance(url, (str, os.PathLike))]:
            raise TypeError(f"{wrong[0]!r:.60} is not a url or path of a file")
        found = [_absolute(os.fspath(url)) for url in urls]
        if not found:
            raise ScanError(url="", reason="the list of files is empty")
        return found
    url = os.fspath(urls)
    if url.endswith(".txt"):
        with fsspec.open(url, "rt", **(storage_options or {})) as lines:
            return _files([line.strip() for line in lines if line.strip()], storage_options)
    matching = matching_urls(url, storage_options or {})
    if matching == []:
        raise ScanError(url=url, reason="no file matches")
    return [_absolute(url)] if matching is None else matching


def _absolute(url: str) -> str:
    place = place_of(url)
    if place.path or place.adapter is not None:
        raise ScanError(url=url, reason="a file is scanned, and the url names a node in it")
    url = place.url
    return url if "://" in url else str(Path(url).expanduser().absolute())
