"""Transform variables of a labelled dataset: `Dataset.chunkmill.transform`, which keeps dimensions and coordinates.

Coordinates are written first, as any dataset; then the results, as one job. Not here: `transform` itself
(`chunkmill.transforms.transform`), writing datasets (`chunkmill.xarray.write`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from xarray import DataArray, Dataset, open_dataset

from chunkmill.conversion.plan import Report
from chunkmill.errors import DatasetError, NodeNotFound
from chunkmill.nodes.api import Url, open_group
from chunkmill.nodes.keys import join_path
from chunkmill.nodes.keywords import explained
from chunkmill.transforms.targets import target_options
from chunkmill.transforms.transform import transform
from chunkmill.xarray.write import write_dataset

__all__ = ["transform_dataset"]


def transform_dataset(
    ds: Dataset,
    function: Callable[..., Any],
    url: Url,
    path: str = "",
    *,
    variables: Sequence[Hashable] | None = None,
    names: Sequence[str] | None = None,
    **options: Any,
) -> Report:
    """Apply a function to variables of a dataset, and write the results with their coordinates.

    Parameters
    ----------
    variables
        The sources; all data variables by default.
    names
        Of the results; the name of the variable, where there is one, by default.

    Raises
    ------
    DatasetError
        There are several variables and no names; a dimension that has coordinates gets another length; or other
        coordinates are stored at the target.
    """
    names = [names] if isinstance(names, str) else names
    chosen = [*ds.data_vars] if variables is None else [variables] if isinstance(variables, str) else [*variables]
    if names is None and len(chosen) != 1:
        reason = f"the function is given {chosen}, and nothing says what its results are called"
        raise DatasetError(variable="", url=str(url), reason=reason, hint="give names=[...]")
    called = [str(chosen[0])] if names is None else [*map(str, names)]
    format_, target_options = options.pop("format", None), options.get("target_storage_options")
    opening = options.get("storage_options") if target_options is None else target_options
    kept = _coordinates(ds, chosen, _lengths(ds, chosen, len(called), options), str(url))
    _write_coordinates(kept, url, path, format=format_, storage_options=opening)
    if len(called) == 1 and isinstance(ds[chosen[0]], DataArray) and "attributes" not in options:
        options["attributes"] = {str(name): value for name, value in ds[chosen[0]].attrs.items()}
    places = [(url, join_path(path, name)) for name in called]
    sources = [ds[name] for name in chosen]
    run = explained(transform)
    report: Report = run(function, sources, places if len(places) > 1 else places[0], format=format_, **options)
    return report


def _lengths(ds: Dataset, variables: Sequence[Hashable], n_results: int, options: Mapping[str, Any]) -> dict[str, int]:
    """Return the dimensions of the results, and their lengths."""
    own = {str(name): n for variable in variables for name, n in ds[variable].sizes.items()}
    first = [str(name) for name in ds[variables[0]].dims]
    asked = {name: options.get(name) for name in ("shape", "dimension_names")}
    found: dict[str, int] = {}
    for each in target_options(n_results, is_list=n_results > 1, **asked):
        shape = each["shape"]
        shape = (shape,) if isinstance(shape, int) else shape
        names = each["dimension_names"] or (first if shape is not None and len(shape) == len(first) else [*own])
        found |= zip(names, [own.get(name, 0) for name in names] if shape is None else shape, strict=False)
    return found


def _coordinates(ds: Dataset, variables: Sequence[Hashable], lengths: Mapping[str, int], url: str) -> Dataset:
    """Return the coordinates of some variables along the dimensions of the results, and the dataset's attributes.

    Raises
    ------
    DatasetError
        One of these dimensions has another length now.
    """
    coordinates = ds[[*variables]].coords.to_dataset()
    coordinates = coordinates.drop_vars(
        [name for name, each in coordinates.coords.items() if not lengths.keys() >= {*each.dims}]
    )
    for name, n in coordinates.sizes.items():
        if n != lengths[str(name)]:
            reason = f"it would have {lengths[str(name)]} elements, and its coordinates have {n}"
            hint = "leave them out (ds.drop_vars), and write those of the result"
            raise DatasetError(variable=str(name), url=url, reason=reason, hint=hint)
    return coordinates.assign_attrs(ds.attrs)


def _write_coordinates(coordinates: Dataset, url: Url, path: str, **options: Any) -> None:
    """Write coordinates to a new group; where they are stored there already, leave them.

    Raises
    ------
    DatasetError
        The group there has others.
    """
    try:
        group = open_group(url, path, storage_options=options["storage_options"])
    except NodeNotFound:
        write_dataset(coordinates, url, path, **options)
        return
    stored = open_dataset(group.store, engine="chunkmill", group=group.path)  # type: ignore[arg-type]
    for name, coordinate in coordinates.coords.items():
        if name not in stored.coords or not stored.coords[name].equals(coordinate):
            reason = "other coordinates are stored there, or none"
            raise DatasetError(variable=str(name), url=str(url), reason=reason, hint="give another path as the target")
