"""Arguments that users of other libraries give: what theirs is called here, and modes that were meant for paths.

`explained` wraps a public function as users see it; a call that is right costs one comparison. Not here: arguments
that several functions share (`chunkmill.nodes.api`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from chunkmill.errors import NodeNotFound

__all__ = ["THEIRS", "explained"]

Translated = Callable[[Any], Any]

_MODES_OF_WRITERS = frozenset({"w", "w-", "a-", "r+"})
_MODES = _MODES_OF_WRITERS | {"r", "a"}


def _format(value: Any) -> str:
    return f"zarr{value}" if value in {2, 3, "2", "3"} else value


def _replaces(value: Any) -> str:
    return "w" if value else "w-"


THEIRS: Mapping[str, tuple[tuple[str, Translated | None], ...]] = {
    "store": (("url", None), ("source", None)),
    "filename_or_obj": (("url", None),),
    "component": (("path", None),),
    "group": (("path", None),),
    "name": (("path", None),),
    **dict.fromkeys(("zarr_" + word for word in ("format", "version")), (("format", _format),)),
    "compressors": (("codecs", None),),
    "compressor": (("codecs", None),),
    "compression": (("codecs", None),),
    "compression_options": (("codecs", None),),
    "filters": (("codecs", None),),
    "serializer": (("codecs", None),),
    "overwrite": (("mode", _replaces),),
    "mode": (("overwrite", lambda mode: mode == "w"),),
    "target_chunks": (("chunks", None),),
    "target_store": (("target", None),),
    "target_options": (("codecs", None),),
    "temp_store": (("temp", None),),
    "temp_options": (("temp_codec", None),),
    "max_memory": (("max_mem", None),),
    "allowed_mem": (("max_mem", None),),
    "use_consolidated": (("consolidated", None),),
    "arr": (("x", None),),
    "data": (("x", None),),
    "array": (("x", None),),
    "dataset": (("ds", None),),
    "attrs": (("attributes", None),),
    "dims": (("dimension_names", None),),
    "fillvalue": (("fill_value", None),),
    "dimension_separator": (("chunk_key_encoding", None),),
    "backend_kwargs": (("storage_options", None),),
    "region_slices": (("region", None),),
    "concat_dims": (("dim", None),),
    "concat_dim": (("dim", None),),
    "write_empty": (("write_empty_chunks", None),),
    "depth": (("halo", None),),
    "kwargs": (("params", None),),
    "meta": (("dtype", lambda meta: str(getattr(meta, "dtype", meta))),),
    "func": (("function", None),),
    "drop_axis": (("dimension_names", lambda _: ...),),
    "new_axis": (("dimension_names", lambda _: ...),),
}
"""Keyword of zarr-python, dask, xarray, rechunker, z5py or kerchunk -> ours, the first that the function has, and how a
value of theirs is written here (``None``: the same, or no value of theirs fits)."""

_NOT_NEEDED = {
    "safe_chunks": "blocks that do not fit the chunks are regrouped",
    "align_chunks": "blocks that do not fit the chunks are regrouped",
    "inline_array": "the graph is one symbolic layer",
    "executor": "jobs run on Dask's current scheduler or Client",
    "n_threads": "threads are Dask's: dask.config.set(num_workers=4)",
    "synchronizer": "parts of chunks are guarded by the store, or by locks (see lock=)",
    "chunkmanager_store_kwargs": "its entry lock= is an argument here",
    "zarr_array_kwargs": "its entries are arguments here: chunks=, shards=, codecs=, fill_value=",
    "allow_rechunk": "a halo may be longer than a block",
    "align_arrays": "a block is the same region of all sources",
    "engine": "the format is detected, or given as format=",
}


def explained(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that explains keywords that it does not have, and a mode given as the path.

    Examples
    --------
    >>> def to_store(x, url, path="", *, mode="w-", codecs="default"):
    ...     return path
    >>> explained(to_store)(1, "x.zarr", compressors="zstd")
    Traceback (most recent call last):
    TypeError: to_store() has no argument 'compressors': did you mean codecs='zstd'?
    >>> explained(to_store)(1, "x.zarr", "w")
    Traceback (most recent call last):
    ValueError: to_store(): 'w' is given as the path of a node: did you mean mode='w'? path='w' names a node
    """
    signature = inspect.signature(function)
    names = tuple(signature.parameters)
    known = frozenset(names)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    at = names.index("path") if "path" in known else len(names)
    # what writes makes a node of the path: no later error would tell
    writes = function.__name__.startswith(("to_", "write_", "create_"))

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not takes_any and not known.issuperset(options):
            unknown = next(name for name in options if name not in known)
            raise TypeError(_unknown(function.__name__, unknown, options[unknown], names)) from None
        if len(args) <= at or not isinstance(args[at], str) or args[at] not in _MODES or "mode" in options:
            return function(*args, **options)
        way = f"mode={args[at]!r}" if "mode" in known else "overwrite=True"
        if writes and args[at] in _MODES_OF_WRITERS:
            where = f"{function.__name__}(): {args[at]!r} is given as the path of a node"
            raise ValueError(f"{where}: did you mean {way}? path={args[at]!r} names a node")
        try:
            return function(*args, **options)
        except NodeNotFound as error:
            if type(error) is not NodeNotFound or error.found is not None or error.path != args[at]:
                raise
            hint = f"did you mean {way}? The argument after the url is the path"
            raise NodeNotFound(url=error.url, path=error.path, wanted=error.wanted, hint=hint) from None

    call.__module__ = "chunkmill"  # where it is pickled from
    return call


def _unknown(function: str, keyword: str, value: Any, names: tuple[str, ...]) -> str:
    begin = f"{function}() has no argument {keyword!r}"
    if keyword in _NOT_NEEDED:
        return f"{begin}: it is not needed, {_NOT_NEEDED[keyword]}"
    for ours, translated in THEIRS.get(keyword, ()):
        if ours in names:
            return f"{begin}: did you mean {ours}={_shown(value if translated is None else translated(value))}?"
    if close := get_close_matches(keyword, names, n=1):
        return f"{begin}: did you mean {close[0]}={_shown(value)}?"
    return f"{begin}; it has {', '.join(names)}"


def _shown(value: Any) -> str:
    """Return a short value as Python writes it; of long ones nothing."""
    text = repr(value) if isinstance(value, (str, int, float, bool, tuple, list, dict, type(None))) else ""
    return text if len(text) <= 60 else ""  # noqa: PLR2004 - of a line
