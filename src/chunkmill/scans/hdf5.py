"""References of HDF5 files: VirtualiZarr finds the byte ranges of each dataset, the rest is what it would say wrongly.

Attributes are read here: VirtualiZarr makes a space of an empty text, and fails at texts in arrays and at fill values
of texts. Small arrays whose values are no byte ranges are read, and stored in the set; larger ones are refused (P1).
Checked against: virtualizarr 2.5.1, h5py 3.x's kinds of storage; values against h5py and xarray's h5netcdf.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib.recfunctions import repack_fields

from chunkmill.errors import ChunkmillError, ScanError
from chunkmill.formats.cf_fill_value import encode_fill_value
from chunkmill.formats.registry import get_format
from chunkmill.hints import Hint
from chunkmill.model.metadata import GroupMetadata
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import ReferenceSet
from chunkmill.nodes.api import create_array
from chunkmill.stores.memory import MemoryStore

MAX_INLINE_BYTES = 1 << 20
"""Arrays of more decoded bytes are not stored in a set."""

# of netCDF4's and HDF5's own bookkeeping; as h5netcdf leaves out
_HIDDEN = {
    "REFERENCE_LIST",
    "CLASS",
    "DIMENSION_LIST",
    "NAME",
    "_Netcdf4Dimid",
    "_Netcdf4Coordinates",
    "_nc3_strict",
    "_NCProperties",
}
_NO_COORDINATE = "_nc4_non_coord_"  # before the name of a variable that is called as a dimension, but is not along it
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"


def parse_hdf5(url: str, uri: str, file: BinaryIO, drop_variables: Collection[str] = ()) -> ReferenceSet:
    """Return the references of an HDF5 file.

    Parameters
    ----------
    url, uri
        Of the file, as errors name it and as references do.
    file
        Its bytes.
    drop_variables
        Names of variables, in any group, that are left out.

    Raises
    ------
    ScanError
        A variable has values that are no byte ranges, and is too large or of a kind that no array holds; names it.
    """
    h5py, builder = import_module("h5py"), ReferenceBuilder(url)
    with h5py.File(file, "r") as opened:
        arrays_of: dict[str, dict[str, Any]] = {"": {}}
        for path, node in (("", opened), *_nodes(url, opened, "", (), frozenset(drop_variables))):
            above, _, name = path.rpartition("/")
            if isinstance(node, h5py.Dataset):
                if not _is_only_dimension(node):
                    name = name.removeprefix(_NO_COORDINATE)
                    arrays_of[above][f"{above}/{name}" if above else name] = node
                continue
            arrays_of[path] = {}
            for key, data in get_format("zarr3").emit_group(path, GroupMetadata(_attributes(url, path, node))).items():
                builder.add_data(key, data)
        lengths = _lengths(each for arrays in arrays_of.values() for each in arrays.values())
        for arrays in arrays_of.values():
            for path, dims in _dims(url, arrays).items():
                axes = _Axes(dims, _shape(arrays[path], lengths))
                _add_array(builder, uri, (url, path), arrays[path], axes)
    return builder.build()


def _nodes(
    url: str, group: Any, prefix: str, above: tuple[Any, ...], dropped: Collection[str]
) -> Iterator[tuple[str, Any]]:
    """Yield path and node of all that is below a group, through links too."""
    h5py = import_module("h5py")
    for name in group:
        if name in dropped:
            continue
        if (node := group.get(name)) is None:
            raise ScanError(url=url, reason=with_way_out(f"{prefix + name!r} is a link to nothing", [name]))
        if node in above or node == group:
            raise ScanError(url=url, reason=with_way_out(f"{prefix + name!r} is a link to a group above it", [name]))
        yield f"{prefix}{name}", node
        if isinstance(node, h5py.Group):
            yield from _nodes(url, node, f"{prefix}{name}/", (*above, group), dropped)


class _Axes(NamedTuple):
    """Names and lengths of the axes of an array in the set."""

    dims: list[str]
    shape: tuple[int, ...]


def _add_array(builder: ReferenceBuilder, uri: str, where: tuple[str, str], dataset: Any, axes: _Axes) -> None:
    """Add an array by its byte ranges, or else with its values."""
    attributes, prefix = _attributes(*where, dataset), f"{where[1]}/"
    parsed = _parsed(uri, dataset)
    if not isinstance(parsed, str):
        document = {**parsed.metadata.to_dict(), "attributes": attributes, "dimension_names": axes.dims}
        document["shape"] = list(axes.shape)
        if dataset.dtype.names is not None:  # the parser does not say the byte order of fields
            order = {"endian": "little" if dataset.dtype == dataset.dtype.newbyteorder("<") else "big"}
            codecs = document["codecs"]
            document["codecs"] = [{**c, "configuration": order} if c["name"] == "bytes" else c for c in codecs]
        if (why := _misread(document, dataset, axes.shape)) is None:
            add_document(builder, prefix, document)
            add_manifest(builder, prefix, document, parsed.manifest)
            return
        parsed = why
    for key, data in _inline(where, dataset, axes, attributes, parsed).items():
        builder.add_data(key, data)


def _misread(document: Mapping[str, Any], dataset: Any, shape: tuple[int, ...]) -> str | None:
    """Return why a document would read other values than the file has; ``None`` where it would not."""
    try:
        value = json.dumps(document, default=text_or_numbers).encode()
        get_format("zarr3").parse_array("", {"zarr.json": value})
    except ChunkmillError as error:
        return f"the document of the parser is wrong: {error}"
    plist = dataset.id.get_create_plist()
    h5d = import_module("h5py").h5d
    if shape != dataset.shape and dataset.shape[0] and plist.get_fill_time() == h5d.FILL_TIME_NEVER:
        return "it is shorter than its dimension, and its last chunks were not filled"
    return None


def _parsed(uri: str, dataset: Any) -> Any:
    """Return the ``ManifestArray`` of a dataset; where its values are no byte ranges, the reason as text."""
    if (why := _no_ranges(dataset)) is not None:
        return why
    make = import_module("virtualizarr.parsers.hdf.hdf")._construct_manifest_array  # noqa: SLF001
    try:
        return make(uri, _WithoutAttributes(dataset), str(dataset.parent.name))
    except Exception as error:  # noqa: BLE001 - what h5py reads can still be stored
        return f"the parser fails: {type(error).__name__}: {error}"


class _WithoutAttributes:
    """A dataset whose attributes the parser does not see."""

    attrs: Mapping[str, Any] = {}

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


# --------------------------------------------------------------------------------------------------------------------
# Dimensions and attributes


def _is_only_dimension(dataset: Any) -> bool:
    """Return whether a dataset stands for a dimension of netCDF that has no coordinate."""
    name = dataset.attrs.get("NAME") if "CLASS" in dataset.attrs else None
    return name is not None and text_of(name).startswith(_NO_VARIABLE)


def _dims(url: str, arrays: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the axes of the arrays of a group; those without a name are numbered by length (netCDF4)."""
    found: dict[str, list[str]] = {}
    numbers: dict[tuple[int, int], int] = {}
    for path, dataset in arrays.items():
        dims, seen = found.setdefault(path, []), Counter[int]()
        for axis, length in enumerate(dataset.shape or ()):
            scales = dataset.dims[axis]
            if len(scales) > 1 and not dataset.is_scale:
                raise refused(url, path, f"its axis {axis} has {len(scales)} dimension scales")
            if len(scales) == 1 or dataset.is_scale:
                name = str((scales[0] if len(scales) == 1 else dataset).name)
                dims.append(name.removeprefix(dataset.parent.name).removeprefix("/"))
            else:
                dims.append(f"{_PHONY}{numbers.setdefault((length, seen[length]), len(numbers))}")
                seen[length] += 1
    return found


_PHONY = "phony_dim_"


def _lengths(datasets: Iterable[Any]) -> dict[int, int]:
    """Return the lengths of unlimited dimensions, by the address of their scales: the longest variable's (netCDF4)."""
    found: dict[int, int] = {}
    for dataset in datasets:
        for axis, scale in _unlimited(dataset):
            found[scale] = max(found.get(scale, 0), dataset.shape[axis])
    return found


def _shape(dataset: Any, lengths: Mapping[int, int]) -> tuple[int, ...]:
    """Return the shape of an array, whose chunks beyond what was written are absent."""
    shape = list(dataset.shape or ())
    for axis, scale in _unlimited(dataset):
        shape[axis] = lengths[scale]
    return tuple(shape)


def _unlimited(dataset: Any) -> Iterator[tuple[int, int]]:
    """Yield the unlimited axes, each with the address of its dimension scale."""
    h5o = import_module("h5py").h5o
    for axis, limit in enumerate(dataset.maxshape or ()):
        if limit is None and dataset.is_scale and dataset.ndim == 1:
            yield axis, h5o.get_info(dataset.id).addr
        elif limit is None and len(dataset.dims[axis]):
            yield axis, h5o.get_info(dataset.dims[axis][0].id).addr


def _attributes(url: str, path: str, node: Any) -> dict[str, Any]:
    """Return the attributes of a node as JSON holds them: texts, numbers, and lists of these."""
    found = {}
    for name in node.attrs:
        if name in _HIDDEN:
            continue
        try:
            value = node.attrs[name]
        except (OSError, TypeError, ValueError) as error:
            raise refused(url, path, f"its attribute {name!r} cannot be read: {error}") from error
        found[name] = text_or_numbers(value)
        if name == "_FillValue" and hasattr(node, "dtype") and node.dtype.kind in "biufcSmM":
            fill = fill_value_of(url, path, value, node.dtype)
            if fill is not None:
                found[name] = encode_fill_value(fill, node.dtype)
            elif np.isnan(np.ravel(value)[0]):  # JSON has none
                del found[name]
    return found


# --------------------------------------------------------------------------------------------------------------------
# Values that are no byte ranges


def _no_ranges(dataset: Any) -> str | None:
    """Return why values of a dataset are no byte ranges of its file; ``None`` where they are."""
    h5py = import_module("h5py")
    text, dtype = h5py.check_string_dtype(dataset.dtype), dataset.dtype
    packed = repack_fields(dtype, recurse=True)
    kinds = {
        "it has no elements": dataset.shape is None,
        "it has strings of variable length": text is not None and text.length is None,
        "its elements are of variable length": h5py.check_vlen_dtype(dataset.dtype) is not None,
        "its elements are references": h5py.check_ref_dtype(dataset.dtype) is not None,
        "it has fields of variable length": dtype.names is not None and dtype.hasobject,
        f"its elements of {dtype.itemsize} bytes have unused ones between the fields": packed != dtype,
        "its fields are of several byte orders": packed not in (packed.newbyteorder("<"), packed.newbyteorder(">")),
        "its elements are arrays": dataset.dtype.subdtype is not None,
        "it is stored in other files": _is_elsewhere(dataset),
        "it is stored in its header": dataset.id.get_create_plist().get_layout() == h5py.h5d.COMPACT,
    }
    if found := [reason for reason, holds in kinds.items() if holds]:
        return found[0]
    try:
        import_module("virtualizarr.parsers.hdf.filters").codecs_from_dataset(dataset)
    except Exception as error:  # noqa: BLE001 - whatever the filter of a plugin raises
        return f"its filters are not known: {error}"
    if dataset.id.get_create_plist().get_nfilters() and dataset.chunks is not None:
        masks: list[int] = []
        dataset.id.chunk_iter(lambda chunk: masks.append(chunk.filter_mask))
        if any(masks):  # references cannot say which
            return "some of its chunks are stored without its filters"
    return None


def _is_elsewhere(dataset: Any) -> bool:
    h5py, plist = import_module("h5py"), dataset.id.get_create_plist()
    own = {h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED}
    return plist.get_layout() not in own or plist.get_external_count() > 0


def _inline(
    where: tuple[str, str], dataset: Any, axes: _Axes, attributes: dict[str, Any], reason: str
) -> dict[str, bytes]:
    """Return documents and the one chunk of an array; `ScanError` where it is not small, or no array."""
    h5py, (dims, shape) = import_module("h5py"), axes
    text = h5py.check_string_dtype(dataset.dtype) if dataset.shape is not None else None
    is_text = text is not None and text.length is None
    # HDF5 reads fill values where it does not find other files
    if dataset.shape is None or _is_elsewhere(dataset) or (dataset.dtype.hasobject and not is_text):
        raise refused(*where, reason)
    if math.prod(shape) * dataset.dtype.itemsize > MAX_INLINE_BYTES:
        raise refused(*where, f"{reason}, and it is too large to be stored in the set")
    try:
        values = np.asarray(dataset.asstr()[...] if is_text else dataset[...])
        if shape != dataset.shape:
            whole = np.full(shape, "" if is_text else dataset.fillvalue, values.dtype)
            whole[tuple(map(slice, dataset.shape))] = values
            values = whole
    except Exception as error:
        raise refused(*where, f"{reason}, and it cannot be read: {error}") from error
    if is_text:
        values = values.astype(np.dtypes.StringDType())
        attributes.pop("_FillValue", None)  # no text is missing in xarray's sense
    if values.dtype.names is not None:
        values = repack_fields(values, recurse=True)
    # elements that are arrays are further axes
    dims = [*dims, *(f"{_PHONY}{axis}" for axis in range(dataset.ndim, values.ndim))]
    try:
        return stored_whole(where[1], values, dims=dims, attributes=attributes)
    except ChunkmillError as error:
        raise refused(*where, f"{reason}, and {error}") from error


# --------------------------------------------------------------------------------------------------------------------
# Entries of the set of any file: documents, attributes as JSON, chunks of VirtualiZarr's manifests and of values


def add_group(builder: ReferenceBuilder, prefix: str, group: Any) -> None:
    """Add a ``ManifestGroup`` with all that is below it, whose store keys begin with `prefix`."""
    add_document(builder, prefix, group.metadata.to_dict())
    for name, array in group.arrays.items():
        document = with_known_codecs(array.metadata.to_dict())
        add_document(builder, f"{prefix}{name}/", document)
        add_manifest(builder, f"{prefix}{name}/", document, array.manifest)
    for name, below in group.groups.items():
        add_group(builder, f"{prefix}{name}/", below)


def add_document(builder: ReferenceBuilder, prefix: str, document: Mapping[str, Any]) -> None:
    """Add the document of a group or an array, whose store keys begin with `prefix`."""
    own = {name: value for name, value in document.items() if name != "consolidated_metadata"}
    builder.add_data(f"{prefix}zarr.json", json.dumps(own, default=text_or_numbers).encode())


def add_manifest(builder: ReferenceBuilder, prefix: str, document: Mapping[str, Any], manifest: Any) -> None:
    """Add the chunks of an array, which are byte ranges."""
    paths, offsets, lengths = (np.asarray(a) for a in (manifest._paths, manifest._offsets, manifest._lengths))  # noqa: SLF001
    is_stored = np.asarray(paths != "")
    if not paths.ndim or list(document["shape"]) == []:
        if is_stored.all() and paths.size:
            builder.add(f"{prefix}c", str(paths.ravel()[0]), int(offsets.ravel()[0]), int(lengths.ravel()[0]))
        return
    coords = np.argwhere(is_stored)
    names, numbers = np.unique(np.array(paths[is_stored].tolist(), dtype=str), return_inverse=True)
    ids = np.array([builder.url_id(str(name)) for name in names], dtype=np.int64)
    if len(coords):
        columns = (ids[numbers.reshape(-1)], offsets[is_stored].astype(np.int64), lengths[is_stored].astype(np.int64))
        builder.add_table(f"{prefix}c/", "/", coords, *columns)


def stored_whole(path: str, values: Any, *, dims: Any, attributes: Any, fill_value: Any = None) -> dict[str, bytes]:
    """Return documents and the one chunk of an array with all its values, as Zarr v3 has them."""
    store = MemoryStore()
    create_array(
        store,
        path,
        shape=values.shape,
        dtype=values.dtype,
        chunks=values.shape,
        codecs="raw",
        fill_value=fill_value,
        dimension_names=dims,
        attributes=attributes,
    )[...] = values
    return {key: value for key in store.list_prefix(f"{path}/") if (value := store.get(key)) is not None}


def text_or_numbers(value: Any) -> Any:
    """Return an attribute as text, number or list of these; one that has a single element, as that.

    Examples
    --------
    >>> text_or_numbers(b"K"), text_or_numbers(np.array([0.5], "f4")), text_or_numbers(np.array([1, 2], ">i2"))
    ('K', 0.5, [1, 2])
    """
    if isinstance(value, (bytes, str)):
        return text_of(value)
    if getattr(value, "shape", ()) is None:  # h5py's Empty
        return "" if value.dtype.kind in "SO" else []
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        listed = [text_or_numbers(each) for each in value]
        return listed[0] if len(listed) == 1 else listed
    return value if isinstance(value, (bool, int, float, dict, type(None))) else str(value)


def text_of(value: bytes | str) -> str:
    """Return a text that is UTF-8, or else Latin-1, as in older archives.

    Examples
    --------
    >>> text_of("°C".encode()), text_of("°C".encode("latin-1"))
    ('°C', '°C')
    """
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def fill_value_of(url: str, path: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the attribute ``_FillValue`` as an element of `dtype`; ``None`` where no element equals it.

    Raises
    ------
    ScanError
        It is several values, or not of the kind of the elements; names the variable.
    """
    scalar = np.ravel(value)
    if scalar.size != 1:
        raise refused(url, path, f"its attribute '_FillValue' has {scalar.size} elements")
    found: Any = value.encode() if isinstance(value, str) else scalar[0]
    if (dtype.kind == "S") != isinstance(found, bytes) or (isinstance(found, bytes) and len(found) > dtype.itemsize):
        raise refused(url, path, f"its attribute '_FillValue' is {text_or_numbers(found)!r}, its elements are {dtype}")
    if dtype.kind not in "iu":
        return found
    limits = np.iinfo(dtype)
    is_element = bool(np.isfinite(found)) and limits.min <= found <= limits.max and int(found) == found
    return dtype.type(found) if is_element else None


def refused(url: str, name: str, why: str, *, kind: str = "variable") -> ScanError:
    """Return the error that a variable, or another kind of thing, cannot be referenced."""
    return ScanError(url=url, reason=with_way_out(f"the {kind} {name!r} cannot be referenced: {why}", [name]))


def with_way_out(reason: str, paths: Sequence[str]) -> Hint:
    """Return a reason with the hint that these variables can be left out."""
    names = sorted({path.rpartition("/")[2] for path in paths})
    text = reason.replace("{", "{{").replace("}", "}}")
    return Hint(f"{text}; `scan` leaves it out ({{}}), or convert the file by other means", ("drop_variables", names))


_OF_IMAGECODECS = "imagecodecs_"


def with_known_codecs(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of an array with codecs of numcodecs instead of virtual-tiff's classes of zarr-python.

    Examples
    --------
    >>> codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "imagecodecs_lzw"}]
    >>> found = with_known_codecs({"data_type": "uint8", "codecs": codecs})
    >>> [codec["name"] for codec in found["codecs"]]
    ['bytes', 'numcodecs.imagecodecs_lzw']
    """
    codecs: list[dict[str, Any]] = []
    endian = "little"
    for codec in document["codecs"]:
        endian = codec.get("configuration", {}).get("endian") or endian
    for codec in document["codecs"]:
        name = codec["name"]
        if name == "HorizontalDeltaCodec":
            dtype = np.dtype(document["data_type"])
            shape = document["chunk_grid"]["configuration"]["chunk_shape"]
            about = {"shape": list(shape), "dtype": dtype.str, "axis": -1}
            codecs.append({"name": f"numcodecs.{_OF_IMAGECODECS}delta", "configuration": about})
        elif name == "ChunkyCodec":  # samples of a pixel follow one another: the first axis is the fastest
            n = len(document["shape"])
            codecs[-1] = {"name": "transpose", "configuration": {"order": [*range(1, n), 0]}}
            codecs.append({"name": "bytes", "configuration": {"endian": endian}})
        elif name.startswith(_OF_IMAGECODECS):
            codecs.append({**codec, "name": f"numcodecs.{name}"})
        else:
            codecs.append(codec)
    return {**document, "codecs": codecs}
