"""Rename the codecs of virtual-tiff to those of numcodecs, which chunkmill reads; nothing else of a document changes.

virtual-tiff wraps imagecodecs in classes of zarr-python, under names that no registry knows. The codecs are those that
the package imagecodecs-numcodecs offers to numcodecs.
Checked against: virtual-tiff 0.5, imagecodecs 2026.3; values against tifffile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["with_known_codecs"]

_OF_IMAGECODECS = "imagecodecs_"


def with_known_codecs(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of an array with other names of codecs.

    Examples
    --------
    >>> codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "imagecodecs_lzw"}]
    >>> found = with_known_codecs({"node_type": "array", "data_type": "uint8", "codecs": codecs})
    >>> [codec["name"] for codec in found["codecs"]]
    ['bytes', 'numcodecs.imagecodecs_lzw']
    """
    if document.get("node_type") != "array":
        return document
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
