"""Parse one file to a reference set: by a parser of VirtualiZarr, by kerchunk, or by a function of the user's.

We write no parser. Both packages are extras (``scan``) and are imported where a file needs them. Documents are those of
Zarr v3 where VirtualiZarr parsed, and of Zarr v2 where kerchunk did. Not here: joining the sets of several files
(`chunkmill.scans.join`).
Checked against: virtualizarr 2.5.1, kerchunk 0.2.10; values against xarray's engines h5netcdf and scipy.
"""

from __future__ import annotations

import json
import os
import threading
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
from chunkmill.scans.cached_file import CachedFile
from chunkmill.scans.entries import add_group
from chunkmill.scans.hdf5 import parse_hdf5
from chunkmill.scans.kerchunk import parse_fits, parse_grib, parse_netcdf3
from chunkmill.stores.obstore_clients import location_of
from chunkmill.stores.reference import ReferenceStore
from chunkmill.stores.reference_targets import Targets

__all__ = ["KINDS", "Parser", "kind_of", "open_file", "parse_file", "targets_of"]

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


def kind_of(url: str, storage_options: Mapping[str, Any] | None = None, file: CachedFile | None = None) -> str | None:
    r"""Return the kind of a file by its first bytes, one of `KINDS`; ``None`` where they are of none.

    Examples
    --------
    >>> import fsspec
    >>> with fsspec.open("memory://doc-kind/x.nc", "wb") as file:
    ...     _ = file.write(b"CDF\x02" + bytes(12))
    >>> kind_of("memory://doc-kind/x.nc")
    'netcdf3'
    """
    file = CachedFile(url, storage_options) if file is None else file
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
    fs, path = fsspec.url_to_fs(url, **(storage_options or {}))
    file = CachedFile(url, storage_options)
    if not fs.isfile(path) or (kind := kind_of(url, storage_options, file)) is None:
        return None
    url = _uri(url)
    return ReferenceStore(parse_file(url, kind, storage_options, file=file), targets_of(url, storage_options), url=url)


def parse_file(
    url: str,
    parser: Parser = "auto",
    storage_options: Mapping[str, Any] | None = None,
    drop_variables: Collection[str] = (),
    *,
    file: CachedFile | None = None,
) -> ReferenceSet:
    """Return the references to the chunks of a file.

    Parameters
    ----------
    url
        Of the file: a path, or a url that fsspec opens.
    parser
        One of `KINDS`; or a function from a url to a reference set (a dict as kerchunk makes it) or to a
        ``virtualizarr.manifests.ManifestStore``.
    storage_options
        For the filesystem of the file, as in fsspec.
    drop_variables
        Names of variables, in any group, that are left out.
    file
        The file, if some of it was read before.

    Raises
    ------
    ScanError
        The file is of no kind that is known, its parser is not installed, or cannot describe it; names the variable
        where that is known.
    """
    kind: Any = parser
    file = CachedFile(url, storage_options) if file is None else file
    try:
        kind = _known_kind(url, file) if parser == "auto" else parser
        found = _parsed(kind, url, file, storage_options, drop_variables)
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


def _known_kind(url: str, file: CachedFile) -> str:
    if url.rstrip("/").endswith(".zarr"):  # VirtualiZarr's parser of them leaves groups out
        by = "`to_references` writes a set over it, and `concat_references` joins several"
        raise ScanError(url=url, reason=f"it is a Zarr store, not a file to scan: {by}")
    if (kind := kind_of(url, file=file)) is None:
        raise ScanError(url=url, reason=f"its first bytes are of no kind that is known: {', '.join(KINDS[1:])}")
    return kind


def _parsed(
    kind: Any,
    url: str,
    file: CachedFile,
    storage_options: Mapping[str, Any] | None,
    drop_variables: Collection[str],
) -> ReferenceSet:
    if callable(kind):
        return _as_set(kind(url), url)
    if kind == "hdf5":
        import_module("virtualizarr.parsers")  # an error of its own where it is not installed
        with _QUIET:
            return parse_hdf5(url, _uri(url), file, drop_variables)
    if kind == "netcdf3":
        return parse_netcdf3(url, _uri(url), storage_options, drop_variables)
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
    registry = _registry(url, storage_options)
    with _QUIET:
        return _as_set(make()(url=_uri(url), registry=registry), url)


class _Quiet:
    """Silence warnings, of codecs of numcodecs that Zarr v3 has not, while any thread is inside.

    Each thread for itself, `warnings.catch_warnings` would restore what another one had changed, and all warnings of
    the process could be silent ever after.
    """

    def __init__(self) -> None:
        self._lock, self._n_inside, self._caught = threading.Lock(), 0, warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            self._n_inside += 1
            if self._n_inside == 1:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                warnings.simplefilter("ignore")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if not self._n_inside:
                self._caught.__exit__(None, None, None)


_QUIET = _Quiet()


def _uri(url: str) -> str:
    return url if "://" in url else f"file://{os.path.abspath(url)}"  # noqa: PTH100 - no links are followed


def _registry(url: str, storage_options: Mapping[str, Any] | None) -> Any:
    """Return the stores by which VirtualiZarr's parsers open a file."""
    registry = import_module("obspec_utils.registry").ObjectStoreRegistry
    stores = import_module("obstore.store")
    split = urlsplit(_uri(url))
    if split.scheme in {"file", "local"}:
        return registry({"file://": stores.LocalStore()})
    root = f"{split.scheme}://{split.netloc}"
    if split.scheme in {"http", "https"} and set(storage_options or ()) <= {"headers"}:
        client: Any = {"default_headers": (storage_options or {}).get("headers") or {}, "allow_http": True}
        return registry({root: stores.HTTPStore.from_url(root, client_options=client)})
    location = location_of(root, storage_options)
    if location is None:
        reason = f"VirtualiZarr's parsers open {split.scheme}:// by obstore, which does not take these options"
        raise ScanError(url=url, reason=reason)
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
