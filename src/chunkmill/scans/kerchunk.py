"""Parse netCDF3, FITS and GRIB files by kerchunk, and refuse or mend what it would say wrongly (P1).

kerchunk writes all attributes of netCDF3 as texts, and loses one of two values that stand for missing elements. It
takes the first image of a FITS file alone, writes a filter for scaled images that computes other values, and refers to
compressed images as if they were plain. Of a GRIB file it keeps one message of each variable, and cuts messages of
edition 1 at wrong places. Not here: other parsers (`chunkmill.scans.parse`).
Checked against: kerchunk 0.2.10, astropy 8.0, eccodes 2.50; values against xarray's scipy, astropy
and cfgrib.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any

import fsspec
import numpy as np

from chunkmill.errors import ScanError
from chunkmill.formats.references.json import parse_reference_json
from chunkmill.model.fill_values import emit_v2
from chunkmill.model.references import ReferenceSet
from chunkmill.scans.hdf5 import fill_value_of, refused, text_or_numbers


def parse_netcdf3(
    url: str, uri: str, storage_options: Mapping[str, Any], drop_variables: Collection[str]
) -> ReferenceSet:
    """Return references to the variables of a netCDF3 file.

    Parameters
    ----------
    url, uri
        Of the file, as errors name it and as references do.
    drop_variables
        Names of variables that will be left out, and are not looked at.

    Raises
    ------
    ScanError
        A fill value is several, or no text of a variable of texts.
    """
    to_zarr = import_module("kerchunk.netCDF3").NetCDF3ToZarr
    opened = to_zarr(uri, storage_options=dict(storage_options), inline_threshold=0)
    attributes = {name: dict(variable._attributes) for name, variable in opened.variables.items()}  # noqa: SLF001
    attributes[""] = {name: value for name, value in opened._attributes.items() if name != "filename"}  # noqa: SLF001
    for each in (opened, *opened.variables.values()):
        each._attributes.clear()  # noqa: SLF001 - what is not there is not written wrongly
    references = opened.translate()["refs"]
    opened.fp.close()
    for name, own in attributes.items():
        if name in drop_variables:
            continue
        prefix = f"{name}/" if name else ""
        document = json.loads(references.get(f"{prefix}.zattrs", "{}"))
        if name:
            array = json.loads(references[f"{prefix}.zarray"])
            dtype, said = np.dtype(array["dtype"]), own.pop("_FillValue", None)
            fill = None if said is None else fill_value_of(url, name, said, dtype)
            array["fill_value"] = emit_v2(fill, dtype)
            if said is not None and fill is None and not np.isnan(said):
                own["_FillValue"] = said
            references[f"{prefix}.zarray"] = json.dumps(array)
        document |= {each: text_or_numbers(value) for each, value in own.items()}
        references[f"{prefix}.zattrs"] = json.dumps(document)
    return parse_reference_json(json.dumps({"version": 1, "refs": references}).encode(), source=url)


def parse_fits(url: str, storage_options: Mapping[str, Any], drop_variables: Collection[str]) -> ReferenceSet:
    """Return references to the images and tables of a FITS file, each an array named after its extension.

    Raises
    ------
    ScanError
        An extension is compressed, has columns that are not stored as they read, or the name of another one.
    """
    fits = import_module("astropy.io.fits")
    process_file = import_module("kerchunk.fits").process_file
    with (
        fsspec.open(url, "rb", **storage_options) as file,
        fits.open(file) as hdus,
    ):
        numbers = {
            number: hdu.name or str(number)
            for number, hdu in enumerate(hdus)
            if hdu.header.get("NAXIS", 0) > 0 and hdu.name not in drop_variables
        }
        for number, name in numbers.items():
            if (why := _misread(fits, hdus[number])) is not None:
                raise refused(url, name, why, kind="extension")
    if twice := [name for name, n in Counter(numbers.values()).items() if n > 1]:
        raise refused(url, twice[0], "there are several extensions of that name", kind="extension")
    if not numbers:
        raise ScanError(url=url, reason="no extension has data")
    found = process_file(url, storage_options=dict(storage_options), extension=list(numbers))
    references = {key: value.decode() if isinstance(value, bytes) else value for key, value in found.items()}
    for name in numbers.values():
        _with_scale(references, name)
    return parse_reference_json(json.dumps(references).encode(), source=url)


def _misread(fits: Any, hdu: Any) -> str | None:
    """Return why kerchunk's references to an extension would read as other values; ``None`` where they would not."""
    if isinstance(hdu, fits.CompImageHDU):
        return "it is compressed"
    if isinstance(hdu, fits.BinTableHDU):
        odd = [
            column.name
            for column in hdu.columns
            if column.format[-1:] in {"L", "X"}
            or column.format.lstrip("0123456789")[:1] in {"P", "Q"}
            or column.bscale not in {None, "", 1}
            or column.bzero not in {None, "", 0}
        ]
        return f"its columns {odd} are stored otherwise than they read" if odd else None
    return None if hdu.is_image else "it is a table in text"


def _with_scale(references: dict[str, Any], name: str) -> None:
    """Say the scale of an image by CF's attributes: kerchunk's filter divides by it, and takes other dtypes."""
    document, attributes = json.loads(references[f"{name}/.zarray"]), json.loads(references[f"{name}/.zattrs"])
    for own, of_cf in (("BSCALE", "scale_factor"), ("BZERO", "add_offset"), ("BLANK", "_FillValue")):
        if own in attributes:
            attributes[of_cf] = attributes[own]
    document["filters"] = None
    document["fill_value"] = None  # every chunk is there, and no element is missing but for BLANK
    references |= {f"{name}/.zarray": json.dumps(document), f"{name}/.zattrs": json.dumps(attributes)}


def parse_grib(url: str, storage_options: Mapping[str, Any]) -> ReferenceSet:
    """Return references to the messages of a GRIB file, each a variable.

    Raises
    ------
    ScanError
        The messages are of edition 1, or several are of one variable, or have other coordinates.
    """
    for package in ("eccodes", "cfgrib"):
        import_module(package)
    scan_grib = import_module("kerchunk.grib2").scan_grib
    with fsspec.open(url, "rb", **storage_options) as file:
        head = file.read(8)
    if head[7:8] != b"\x02":
        raise ScanError(url=url, reason=f"it is GRIB of edition {head[7]}: kerchunk reads edition 2 alone; convert it")
    own = "give a function as parser, which calls kerchunk.grib2.scan_grib with a filter"
    joined: dict[str, Any] = {}
    for message in scan_grib(url, storage_options=dict(storage_options)):
        refs = message["refs"]
        for key in filter(joined.__contains__, refs):
            name, is_chunk = key.rpartition("/")[0], isinstance(refs[key], list)
            if is_chunk or (refs[key] != joined[key] and not key.endswith((".zattrs", ".zgroup"))):
                what = "several messages are of the variable" if is_chunk else "its messages have different values of"
                raise ScanError(url=url, reason=f"{what} {name!r} (levels, steps, members): {own}")
        joined = refs | joined
    if not joined:
        raise ScanError(url=url, reason="it has no messages")
    templates = {"u": url}
    return parse_reference_json(json.dumps({"version": 1, "templates": templates, "refs": joined}).encode(), source=url)
