"""Parse one file to a reference set: by a parser of VirtualiZarr, by kerchunk, or by a function of the user's.

We write no parser. Both packages are extras (``scan``) and are imported where a file needs them. Documents are those of
Zarr v3 where VirtualiZarr parsed, and of Zarr v2 where kerchunk did. Not here: joining the sets of several files
(`chunkmill.scans.join`).
Checked against: virtualizarr 2.5.1, kerchunk 0.2.10; values against xarray's engines h5netcdf and scipy.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import fsspec

from chunkmill.errors import ChunkmillError, ScanError
from chunkmill.formats.references.json import parse_reference_json
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import ReferenceSet
from chunkmill.scans.hdf5 import add_group, parse_hdf5
from chunkmill.scans.kerchunk import parse_fits, parse_grib, parse_netcdf3
from chunkmill.stores.obstore_clients import location_of
from chunkmill.stores.reference import ReferenceStore, Targets

Parser: TypeAlias = str | Callable[[str], Any]

KINDS = ("auto", "hdf5", "netcdf3", "fits", "tiff", "grib", "dmrpp")
"""Names of parsers; ``"auto"`` looks at the first bytes of each file."""

_HDF5 = b"\x89HDF\r\n\x1a\n"
_MAGIC = {
    _HDF5: "hdf5",
    b"CDF\x01": "netcdf3",
    b"CDF\x02": "netcdf3",
    b"CDF\x05": "netcdf3",
    b"SIMPLE  =": "fits",
    b"GRIB": "grib",
    b"II*\0": "tiff",
    b"MM\0*": "tiff",
    b"II+\0": "tiff",
    b"MM\0+": "tiff",
    b"<?xml": "dmrpp",
    b"\x0e\x03\x13\x01": "hdf4",
}
_USER_BLOCKS = tuple(512 << i for i in range(12))  # where HDF5 may begin, after bytes of the user's (HDF5 spec, III.A)
_HEAD = 16

_PARSERS = {
    "dmrpp": "virtualizarr.parsers:DMRPPParser",
    "tiff": "virtual_tiff:VirtualTIFF",
}
_PACKAGES = {"tiff": " virtual-tiff imagecodecs-numcodecs", "fits": " astropy", "grib": " cfgrib eccodes"}


def kind_of(file: ScannedFile) -> str | None:
    r"""Return the kind of a file by its first bytes, one of `KINDS`; ``None`` where they are of none.

    Examples
    --------
    >>> import fsspec
    >>> with fsspec.open("memory://doc-kind/x.nc", "wb") as file:
    ...     _ = file.write(b"CDF\x02" + bytes(12))
    >>> kind_of(ScannedFile("memory://doc-kind/x.nc"))
    'netcdf3'
    """
    head = file.range(0, _HEAD)
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    return "hdf5" if any(file.range(start, start + len(_HDF5)) == _HDF5 for start in _USER_BLOCKS) else None


def targets_of(url: str, storage_options: Mapping[str, Any] | None) -> Targets:
    """Return how the files are opened whose references are read while they are scanned: as the user said."""
    protocol = url.partition("://")[0] if "://" in url else "file"
    options = {protocol: dict(storage_options)} if storage_options else None
    return Targets(url, allowed_protocols=("*",), remote_options=options)


def open_file(url: str, storage_options: Mapping[str, Any] | None = None) -> ReferenceStore | None:
    """Parse one file, and return the store of its references; ``None`` where `url` names a folder, or another file.

    Raises
    ------
    ScanError
        As `parse_file`.
    """
    file = ScannedFile(url, storage_options)
    if not file.exists() or (kind := kind_of(file)) is None:
        return None
    return ReferenceStore(parse_file(file, kind), targets_of(file.uri, storage_options), url=file.uri)


def parse_file(file: ScannedFile, parser: Parser = "auto", drop_variables: Collection[str] = ()) -> ReferenceSet:
    """Return the references to the chunks of a file.

    Parameters
    ----------
    parser
        One of `KINDS`; or a function from a url to a reference set (a dict as kerchunk makes it) or to a
        ``virtualizarr.manifests.ManifestStore``.
    drop_variables
        Names of variables, in any group, that are left out.

    Raises
    ------
    ScanError
        The file is of no kind that is known, its parser is not installed, or cannot describe it; names the variable
        where that is known.
    """
    kind, url = parser, file.url
    try:
        kind = _known_kind(file) if parser == "auto" else parser
        found = _parsed(kind, file, drop_variables)
        if not drop_variables:
            return found
        return found.subset(key for key, _ in found.items() if not set(key.split("/")[:-1]) & set(drop_variables))
    except ChunkmillError:
        raise
    except ImportError as error:
        more = _PACKAGES.get(str(kind), "")
        reason = f"its parser needs the package {error.name or error}: pip install 'chunkmill[scan]'{more}"
        raise ScanError(url=url, reason=reason) from error
    except FileNotFoundError as error:
        raise ScanError(url=url, reason="there is no such file") from error
    except Exception as error:
        raise ScanError(url=url, reason=f"the parser fails: {type(error).__name__}: {error}") from error


def _known_kind(file: ScannedFile) -> str:
    url = file.url
    if url.rstrip("/").endswith(".zarr"):  # VirtualiZarr's parser of them leaves groups out
        by = "`to_references` writes a set over it, and `concat_references` joins several"
        raise ScanError(url=url, reason=f"it is a Zarr store, not a file to scan: {by}")
    if (kind := kind_of(file)) is None:
        raise ScanError(url=url, reason=f"its first bytes are of no kind that is known: {', '.join(KINDS[1:])}")
    return kind


def _parsed(kind: Any, file: ScannedFile, drop_variables: Collection[str]) -> ReferenceSet:
    url, storage_options = file.url, file.storage_options
    # for good: of several threads, one would restore by `catch_warnings` what another has changed
    warnings.filterwarnings("ignore", ".*(codecs are not in the Zarr version 3|does not have a Zarr V3) specification")
    if callable(kind):
        return _as_set(kind(url), url)
    if kind == "hdf5":
        import_module("virtualizarr.parsers")  # an error of its own where it is not installed
        return parse_hdf5(url, file.uri, file.opened, drop_variables)
    if kind == "netcdf3":
        return parse_netcdf3(url, file.uri, storage_options, drop_variables)
    if kind == "grib":
        return parse_grib(url, storage_options)
    if kind == "fits":
        return parse_fits(url, storage_options, drop_variables)
    if kind == "hdf4":
        reason = "it is HDF4: VirtualiZarr has no parser of it, and kerchunk's fails; give a function as parser"
        raise ScanError(url=url, reason=reason)
    if kind not in _PARSERS:
        raise ScanError(url=url, reason=f"there is no parser {kind!r}: {', '.join(KINDS)}")
    module, _, name = _PARSERS[kind].partition(":")
    make = getattr(import_module(module), name)
    return _as_set(make()(url=file.uri, registry=_registry(file)), url)


def _registry(file: ScannedFile) -> Any:
    """Return the stores by which VirtualiZarr's parsers open a file."""
    registry = import_module("obspec_utils.registry").ObjectStoreRegistry
    split = urlsplit(file.uri)
    if split.scheme in {"file", "local"}:
        return registry({"file://": import_module("obstore.store").LocalStore()})
    root = f"{split.scheme}://{split.netloc}"
    location = location_of(root, file.storage_options)
    if location is None:
        reason = f"VirtualiZarr's parsers open {split.scheme}:// by obstore, which does not take these options"
        raise ScanError(url=file.url, reason=reason)
    return registry({root: import_module("chunkmill.stores.obstore_clients").open_client(location)})


def _as_set(found: Any, url: str) -> ReferenceSet:
    if isinstance(found, ReferenceSet):
        return found
    if isinstance(found, Mapping):
        return parse_reference_json(json.dumps(found).encode(), source=url)
    group = getattr(found, "_group", None)
    if group is None:
        kind = type(found).__name__
        raise ScanError(url=url, reason=f"the parser returned {kind}, expected a reference set or a ManifestStore")
    builder = ReferenceBuilder(url)
    add_group(builder, "", group)
    return builder.build()


# --------------------------------------------------------------------------------------------------------------------
# The bytes of a file


class ScannedFile:
    """A file for reading; sends no request until it is read.

    Its blocks stay in memory: its kind, a parser and its coordinates read them once.

    Parameters
    ----------
    url
        Of the file: a path, or a url that fsspec opens.
    storage_options
        For its filesystem, as in fsspec.

    Examples
    --------
    >>> with fsspec.open("memory://doc-scanned/x", "wb") as file:
    ...     _ = file.write(b"0123456789")
    >>> ScannedFile("memory://doc-scanned/x").range(2, 5)
    b'234'
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url, self.storage_options = url, storage_options or {}
        self._fs, self._path = fsspec.url_to_fs(url, **self.storage_options)
        self._opened: Any = None
        self._info: Mapping[str, Any] | None = None

    @property
    def uri(self) -> str:
        """Url of the file, of a path too."""
        return self.url if "://" in self.url else f"file://{os.path.abspath(self.url)}"  # noqa: PTH100 - no links are followed

    def exists(self) -> bool:
        """Return whether there is a file, not a folder."""
        return bool(self._fs.isfile(self._path))

    def info(self) -> Mapping[str, Any]:
        """Return the facts of the filesystem about the file; `ScanError` where there is none."""
        try:
            self._info = self._info or self._fs.info(self._path)
        except FileNotFoundError as error:
            raise ScanError(url=self.url, reason="there is no such file") from error
        return self._info

    @property  # no `cached_property`: in Python 3.11 its lock is one of all files, which would wait for each other
    def opened(self) -> Any:
        """The file, opened."""
        if self._opened is None:
            blocks = {"cache_type": "blockcache", "cache_options": {"maxblocks": _MOST_BLOCKS}}
            size = self.info().get("size")  # or it is asked for again
            self._opened = self._fs.open(self._path, "rb", block_size=_BLOCK, size=size, **blocks)
        return self._opened

    def range(self, start: int, stop: int) -> bytes:
        """Return bytes of the file, fewer where it ends."""
        self.opened.seek(start)
        return self.opened.read(max(stop - start, 0))  # type: ignore[no-any-return]


_BLOCK = 1 << 20
_MOST_BLOCKS = 64
