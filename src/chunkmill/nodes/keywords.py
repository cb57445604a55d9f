"""Wrong arguments of public functions: names of other libraries, modes given as paths, values of other types.

`explained` wraps a public function as users see it; a call that is right costs a few comparisons. Not here: arguments
that several functions share (`chunkmill.nodes.api`).
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

Translated = Callable[[Any], Any]
P = ParamSpec("P")
R = TypeVar("R")

_MODES = frozenset({"w", "w-", "a-", "r+"})


_WORDS = {
    "path": "component group name",
    "url": "filename_or_obj",
    "codecs": "compressors compressor compression compression_options filters serializer target_options",
    "chunks": "target_chunks",
    "target": "target_store",
    "temp": "temp_store",
    "temp_codec": "temp_options",
    "max_mem": "max_memory allowed_mem",
    "consolidated": "use_consolidated",
    "x": "arr data array",
    "ds": "dataset",
    "attributes": "attrs",
    "dimension_names": "dims",
    "fill_value": "fillvalue",
    "chunk_key_encoding": "dimension_separator",
    "storage_options": "backend_kwargs",
    "region": "region_slices",
    "dim": "concat_dims concat_dim",
    "write_empty_chunks": "write_empty",
    "halo": "depth",
    "params": "kwargs",
    "function": "func",
}

THEIRS: Mapping[str, tuple[tuple[str, Translated | None], ...]] = {
    **{word: ((ours, None),) for ours, words in _WORDS.items() for word in words.split()},
    "store": (("url", None), ("source", None)),
    **dict.fromkeys(
        ("zarr_" + word for word in ("format", "version")),
        (("format", lambda n: f"zarr{n}" if n in {2, 3, "2", "3"} else n),),
    ),
    "overwrite": (("mode", lambda overwrite: "w" if overwrite else "w-"),),
    "mode": (("overwrite", lambda mode: mode == "w"),),
    "meta": (("dtype", lambda meta: str(getattr(meta, "dtype", meta))),),
    **dict.fromkeys(("drop_axis", "new_axis"), (("dimension_names", lambda _: ...),)),
}
"""Keyword of zarr-python, dask, xarray, rechunker, z5py or kerchunk -> ours, the first that the function has, and how a
value of theirs is written here (``None``: the same, or no value of theirs fits)."""

_NOT_NEEDED = {
    **dict.fromkeys(("safe_chunks", "align_chunks"), "blocks that do not fit the chunks are regrouped"),
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

_ELSEWHERE = {
    **dict.fromkeys(("resume", "progress"), "plan_{}(...).run({}=...) has it"),
    "target_storage_options": "storage_options= are for both; else give an opened node, or a store object",
}
"""What has a keyword that jobs might have."""


def with_options_of(planner: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Decorate a function that takes the options of `planner`: its signature shows them."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        own = inspect.signature(function)
        named = [each for each in own.parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]
        shown = own.replace(parameters=[*inspect.signature(planner).parameters.values(), *named])
        function.__signature__ = shown  # type: ignore[attr-defined]
        return function

    return decorate


def explained(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that explains keywords that it does not have, values of other types, and a mode as the path.

    Examples
    --------
    >>> def to_store(x, url, path: str = "", *, mode="w-", codecs="default"):
    ...     return path
    >>> explained(to_store)(1, "x.zarr", compressors="zstd")
    Traceback (most recent call last):
    TypeError: to_store() has no argument 'compressors': did you mean codecs='zstd'?
    >>> explained(to_store)(1, "x.zarr", 3)
    Traceback (most recent call last):
    TypeError: to_store(): path=3 is int, where str is expected
    >>> explained(to_store)(1, "x.zarr", "w")
    Traceback (most recent call last):
    ValueError: to_store(): 'w' is given as the path of a node: did you mean mode='w'? path='w' names a node
    """
    signature = inspect.signature(function)
    names = tuple(signature.parameters)
    known = frozenset(names)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    kinds = {each.name: found for each in signature.parameters.values() if (found := _kinds(str(each.annotation)))}
    expected = {name: signature.parameters[name].annotation for name in kinds}
    of_items = {name: found for name in kinds if (found := _kinds(_items(str(expected[name]))))}
    at = names.index("path") if "path" in known else len(names)
    # what writes makes a node of the path: no later error would tell
    writes = function.__name__.startswith(("to_", "write_", "create_"))

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not takes_any and not known.issuperset(options):
            unknown = next(name for name in options if name not in known)
            raise TypeError(_unknown(function.__name__, unknown, options[unknown], names)) from None
        for name, value in (*zip(names, args, strict=False), *options.items()):
            is_checked = name in kinds and value is not signature.parameters[name].default
            if is_checked and (wrong := _mismatch(value, kinds[name], of_items.get(name, ()))) is not None:
                raise TypeError(f"{function.__name__}(): {name}={wrong}, where {expected[name]} is expected")
        if writes and len(args) > at and isinstance(args[at], str) and args[at] in _MODES and "mode" not in options:
            way = f"mode={args[at]!r}" if "mode" in known else "overwrite=True"
            where = f"{function.__name__}(): {args[at]!r} is given as the path of a node"
            raise ValueError(f"{where}: did you mean {way}? path={args[at]!r} names a node")
        return function(*args, **options)

    call.__module__ = "chunkmill"  # where it is pickled from
    return call


_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (Integral,),
    "float": (Real,),
    "bool": (bool,),
    "None": (type(None),),
    "Mapping": (Mapping,),
    **dict.fromkeys(("Collection", "Iterable", "Sequence"), (Iterable,)),
    "os.PathLike": (os.PathLike,),
    "Literal": (str, Integral),
    **dict.fromkeys(("Mode", "ReadMissing"), (str,)),
}
"""Types of values by annotations; an argument that has another one, such as `Any`, is not checked."""


_LISTED = (list, tuple, set, frozenset)


def _is_of(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bytes)


def _mismatch(value: Any, kinds: tuple[type, ...], of_items: tuple[type, ...]) -> str | None:
    """Return a value that is of no expected type, or has an item of none, as text; else ``None``."""
    if not _is_of(value, kinds):
        return f"{_shown(value)} is {type(value).__name__}"
    is_wrong = of_items and isinstance(value, _LISTED) and not all(_is_of(each, of_items) for each in value)
    return _shown(value) if is_wrong else None


def _items(annotation: str) -> str:
    """Return the annotation of the items of a collection, empty where there is none; lengths are checked elsewhere.

    Examples
    --------
    >>> _items("str | Collection[str | None] | None"), _items("Mapping[str, int]")
    ('str | None', '')
    """
    found = re.search(r"\b(?:Collection|Iterable)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", annotation)
    return found[1] if found else ""


def _kinds(annotation: str) -> tuple[type, ...]:
    """Return the types that an annotation allows, none where it does not say.

    Examples
    --------
    >>> _kinds("Mapping[str, int | None] | None"), _kinds("Url")
    ((<class 'collections.abc.Mapping'>, <class 'NoneType'>), ())
    """
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", annotation)) != annotation:
        annotation = shorter
    found = [_KINDS.get(part.strip(), ()) for part in annotation.split("|")]
    return tuple(kind for part in found for kind in part) if all(found) else ()


def _unknown(function: str, keyword: str, value: Any, names: tuple[str, ...]) -> str:
    begin = f"{function}() has no argument {keyword!r}"
    if keyword in _NOT_NEEDED:
        return f"{begin}: it is not needed, {_NOT_NEEDED[keyword]}"
    if keyword in _ELSEWHERE and function in {"convert", "rechunk", "pyramid", "transform"}:
        return f"{begin}: {_ELSEWHERE[keyword].format(function, keyword)}"
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
