"""Plan the write of a dataset: encode, describe and compare every variable before anything is written.

Whatever can fail without writing fails here: variables that do not fit the format or the store, values that the stored
encoding cannot represent, coordinates that differ. Not here: the writing (`chunkmill.xarray.write`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xarray import Dataset, DataTree, Variable, conventions

from chunkmill.array.selection import full_region
from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.blocks import with_checked_blocks
from chunkmill.errors import DatasetError, NodeExists, NodeNotFound, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.model.grid import Region
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes.array import Array
from chunkmill.nodes.opening import array_at
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.stores.base import Store
from chunkmill.xarray.backend import dimension_names
from chunkmill.xarray.new_variable import ENCODING_FAULTS, describe_variable, json_attributes, with_lowered
from chunkmill.xarray.publication import Growth, UnfinishedAppend, merged_attributes, resized
from chunkmill.xarray.stored_variable import StoredVariable, find_region, match_dims, stored_sizes

__all__ = [
    "DatasetPlan",
    "LabelledGroup",
    "VariablePlan",
    "check_new_labels",
    "join",
    "labelled_groups",
    "plan_existing",
    "plan_new",
    "stored_arrays",
]

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class LabelledGroup:
    """A dataset and the path of its group; ``coordinates`` attributes are set, values are not encoded.

    Attributes
    ----------
    asked
        Encoding that was passed to this write, by variable.
    """

    path: str
    dataset: Dataset
    variables: Mapping[Any, Variable]
    attributes: Mapping[Hashable, Any]
    asked: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class VariablePlan:
    """Encoded values, of numpy or dask.array, and the region of the array to write them to.

    Attributes
    ----------
    path
        Of the array in the store, when everything is published.
    stored
        The array as it is in the store; ``None`` for a new one.
    """

    path: str
    array: StoredArray
    region: Region
    data: Any
    write_empty: bool | None = None
    stored: StoredArray | None = None


@dataclass(slots=True)
class DatasetPlan:
    """Everything that a write does.

    Attributes
    ----------
    variables
        Variables to write.
    unchanged
        Paths of variables that equal the stored ones, so that they are not written.
    groups
        Paths of the groups, parents first.
    nodes
        Path -> documents of a new array or group.
    attributes
        Path of an existing group -> attributes that the write adds.
    growth
        Arrays that an append makes longer.
    pending
        Path of an existing group -> the unfinished append that is marked there.
    chunk_key_encoding
        Of new arrays.
    dtypes
        Path of a new array -> the dtype that it was read from and its own, where these differ: ``"int16 -> float64"``.
    """

    store: Store
    path: str
    documents_format: Format
    variables: list[VariablePlan] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    nodes: dict[str, dict[str, bytes]] = field(default_factory=dict)
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    growth: list[Growth] = field(default_factory=list)
    pending: dict[str, UnfinishedAppend] = field(default_factory=dict)
    chunk_key_encoding: Any = None
    dtypes: dict[str, str] = field(default_factory=dict)

    def add(self, labelled: LabelledGroup, name: str, variable: Variable) -> None:
        """Plan a new array."""
        path, asked = join(labelled.path, name), labelled.asked.get(name)
        keys = self.chunk_key_encoding
        new = describe_variable(
            self.documents_format, name, variable, asked=asked, url=self.store.url, chunk_key_encoding=keys
        )
        array = array_at(self.store, path, new.metadata, self.documents_format)
        if change := _dtype_change(variable.encoding.get("dtype"), array.dtype):
            self.dtypes[array.path] = change
        self.nodes[array.path] = self.documents_format.emit_array(array.path, new.metadata)
        data = StoredVariable.of(name, array, variable).encoded(variable) if new.is_encoded else variable.data
        self.variables.append(VariablePlan(array.path, array, full_region(array.shape), data, new.write_empty))

    def add_group(self, labelled: LabelledGroup) -> None:
        """Plan a new group."""
        metadata = GroupMetadata(json_attributes(labelled.attributes, "", join(self.store.url, labelled.path)))
        self.nodes[labelled.path] = self.documents_format.emit_group(labelled.path, metadata)


def _dtype_change(before: Any, after: np.dtype[Any]) -> str:
    """Return the dtype that numbers were stored in, and that of their array, as text; nothing where they are equal."""
    try:
        stored = np.dtype(before) if before is not None else after
    except TypeError:  # as of text
        return ""
    is_same = (stored.kind, stored.itemsize) == (after.kind, after.itemsize)
    return "" if is_same or not {stored.kind, after.kind} <= set("iufcb") else f"{stored} -> {after}"


def labelled_groups(
    data: Dataset | DataTree, path: str, encoding: Mapping[str, Any] | None, url: str
) -> list[LabelledGroup]:
    """Return the datasets of `data` with their paths, parents first; check their names, and those in `encoding`."""
    encoding = dict(encoding or {})
    if isinstance(data, Dataset):
        return _lowered([_labelled(data, path, encoding, url)])
    if not isinstance(data, DataTree):
        raise TypeError(
            f"expected a Dataset or a DataTree, got {type(data).__name__}: call to_dataset() on a DataArray"
        )
    groups = [
        _labelled(node.to_dataset(inherit=node is data), join(path, relative), encoding.pop(node.path, {}), url)
        for relative, node in data.subtree_with_keys
    ]
    if encoding:
        hint = "the encoding of a tree is a mapping by group ('/' for the root), then by variable"
        raise DatasetError(variable="", url=url, reason=f"encoding names unknown groups {sorted(encoding)}", hint=hint)
    return _lowered(groups)


def _lowered(groups: Sequence[LabelledGroup]) -> list[LabelledGroup]:
    """Return the groups with variables of `dask.array.core`, all optimized together."""
    known = {(i, name): variable for i, group in enumerate(groups) for name, variable in group.variables.items()}
    found = with_lowered(known)
    return [
        replace(group, variables={name: found[i, name] for name in group.variables}) for i, group in enumerate(groups)
    ]


def _labelled(dataset: Dataset, path: str, encoding: Mapping[str, Any], url: str) -> LabelledGroup:
    for name in dataset.variables:
        if not isinstance(name, str) or not name or {"/", "\\"} & set(name):  # zarr-python takes both as separators
            reason = f"the name {name!r}: expected text without '/' and '\\'"
            raise DatasetError(variable=str(name), url=url, reason=reason, hint="rename it: ds.rename({…: …})")
    if unknown := sorted(set(encoding) - set(map(str, dataset.variables))):
        raise DatasetError(variable="", url=url, reason=f"encoding names unknown variables {unknown}")
    for name, own in encoding.items():
        if not isinstance(own, Mapping):
            raise TypeError(f"encoding[{name!r}]={own!r:.60}: expected a mapping, {{'dtype': …}}")
    try:
        variables, attributes = conventions.encode_dataset_coordinates(dataset)
    except ENCODING_FAULTS as error:
        raise DatasetError(variable="", url=url, reason=f"xarray cannot encode its coordinates: {error}") from error
    return LabelledGroup(path, dataset, variables, attributes, dict(encoding))


def join(path: str, name: str) -> str:
    """Return the path of `name`, which may be ``.``, below `path`."""
    return "/".join(part for part in (path, name) if part and part != ".")


def plan_new(
    groups: Iterable[LabelledGroup],
    store: Store,
    path: str,
    documents_format: Format,
    *,
    chunk_key_encoding: Any = None,
) -> DatasetPlan:
    """Encode and describe all variables of a new group.

    Raises
    ------
    UnsupportedFeature
        The format cannot hold some of them: all are named.
    """
    plan = DatasetPlan(store, path, documents_format, chunk_key_encoding=chunk_key_encoding)
    refused: dict[str, UnsupportedFeature] = {}
    for labelled in groups:
        plan.groups.append(labelled.path)
        plan.add_group(labelled)
        for name, variable in labelled.variables.items():
            try:
                plan.add(labelled, name, variable)
            except UnsupportedFeature as error:
                refused[join(labelled.path, name)] = error
    _raise_all(documents_format, refused)
    return plan


def _raise_all(documents_format: Format, refused: Mapping[str, UnsupportedFeature]) -> None:
    if refused:
        features = "; ".join(f"{path!r}: {error.feature}" for path, error in refused.items())
        hint = "nothing was written; leave them out with drop_vars, convert them, or choose another format"
        raise UnsupportedFeature(format=documents_format.name, feature=f"these variables: {features}", hint=hint)


# --------------------------------------------------------------------------------------------------------------------
# Existing groups


@dataclass(frozen=True, slots=True)
class _WriteTarget:
    """Group to write into, existing or new, and the region of its arrays that is written."""

    labelled: LabelledGroup
    arrays: Mapping[str, StoredArray]  # as long as before an append that was interrupted
    stored: Mapping[str, StoredArray]
    adds: bool
    keeps: bool
    append_dim: Hashable | None
    cuts: Mapping[Hashable, slice]
    sizes: Mapping[Hashable, int]  # of dimensions, in the store

    @property
    def partial(self) -> bool:
        """Only a region of the arrays is written, so that variables outside it are compared."""
        return self.append_dim is not None or bool(self.cuts)

    def region_of(self, dims: Iterable[Hashable], shape: Iterable[int], sizes: Mapping[Hashable, int]) -> Region:
        """Return the region of an array of `shape` that is written; it exceeds the shape along `append_dim`."""
        return tuple(
            slice(size, size + sizes[dim]) if dim == self.append_dim else self.cuts.get(dim, slice(0, size))
            for dim, size in zip(dims, shape, strict=True)
        )


def plan_existing(
    groups: Iterable[LabelledGroup],
    root: StoredGroup,
    *,
    region: Any,
    append_dim: Hashable | None,
    adds: bool,
    keeps: bool = False,
    chunk_key_encoding: Any = None,
) -> DatasetPlan:
    """Compare, encode and check all variables against the existing arrays; with `adds`, describe new ones.

    With `keeps`, stored variables without `append_dim` are left unchanged, and only index coordinates are compared.

    Raises
    ------
    DatasetError
        A variable does not match what is stored.
    UnsupportedFeature
        The format cannot hold some new variables: all are named.
    """
    plan = DatasetPlan(root.store, root.path, root.documents, chunk_key_encoding=chunk_key_encoding)
    refused: dict[str, UnsupportedFeature] = {}
    groups = tuple(groups)
    has_dim = any(append_dim in labelled.dataset.dims for labelled in groups)
    for labelled in groups:
        plan.groups.append(labelled.path)
        group = _group_at(root, labelled.path, adds=adds)
        if group is None:
            plan.add_group(labelled)
        else:
            plan.pending[group.path] = UnfinishedAppend.of(group.metadata.attributes)
        stored = {} if group is None else group.arrays(lambda _: True)
        arrays = _before_unfinished(root, group, stored)
        cuts = {} if region is None else find_region(labelled.dataset, region, arrays, root.url)
        if append_dim is not None:
            _check_append(labelled, arrays, append_dim, root.url, has_dim=has_dim)
        target = _WriteTarget(labelled, arrays, stored, adds, keeps, append_dim, cuts, stored_sizes(arrays))
        for name, variable in labelled.variables.items():
            if name in target.arrays:
                _plan_known(plan, target, name, variable)
                continue
            _check_new(target, name, variable, root.url)
            try:
                plan.add(labelled, name, variable)
            except UnsupportedFeature as error:
                refused[join(labelled.path, name)] = error
        if group is not None and adds and not target.partial:
            added = json_attributes(labelled.attributes, "", join(group.url, group.path))
            if merged_attributes(group.attributes, added) != dict(group.attributes):
                plan.attributes[group.path] = added
    _raise_all(root.documents, refused)
    grown = [each.path.removeprefix(root.path).strip("/") for each in plan.growth]
    if append_dim is not None:
        UnfinishedAppend.of(root.metadata.attributes).check_repeated(str(append_dim), grown, root.url)
    return plan


def _before_unfinished(
    root: StoredGroup, group: StoredGroup | None, arrays: Mapping[str, StoredArray]
) -> dict[str, StoredArray]:
    """Return the arrays of a group below `root` as long as before an append that was interrupted."""
    if group is None:
        return {}
    unfinished = UnfinishedAppend.of(root.metadata.attributes).below(group.path.removeprefix(root.path).strip("/"))
    return unfinished.joined(UnfinishedAppend.of(group.metadata.attributes)).arrays_before(arrays)


def stored_arrays(root: StoredGroup, path: str) -> dict[str, StoredArray]:
    """Return the arrays of the group at `path`, below `root` or itself; none where there is no such group."""
    group = _group_at(root, path, adds=True)
    return {} if group is None else _before_unfinished(root, group, group.arrays(lambda _: True))


def _group_at(root: StoredGroup, path: str, *, adds: bool) -> StoredGroup | None:
    if path == root.path:
        return root
    try:
        node = root[path.removeprefix(root.path).strip("/")]
    except NodeNotFound:
        if adds:
            return None
        raise
    if isinstance(node, StoredArray):
        hint = "a group of the dataset cannot replace an array: give another path"
        raise NodeExists(url=root.url, path=path, found="array", hint=hint)
    return node


def _check_append(
    labelled: LabelledGroup, arrays: Mapping[str, StoredArray], dim: Hashable, url: str, *, has_dim: bool
) -> None:
    """Raise `DatasetError` for a group that cannot be appended to.

    One without the dimension in both is compared, where others of the dataset have it (`has_dim`).
    """
    lengths = {
        name: array.shape[dims.index(dim)]
        for name, array in arrays.items()
        if dim in (dims := dimension_names(name, array))
    }
    if has_dim and not lengths and dim not in labelled.dataset.dims:
        return
    if dim not in labelled.dataset.dims or not lengths:
        where = f"{'store' if not lengths else 'dataset'}{f' in {labelled.path!r}' if labelled.path else ''}"
        raise DatasetError(variable="", url=url, reason=f"append_dim={dim!r} is not a dimension of the {where}")
    if missing := sorted(lengths.keys() - labelled.variables.keys()):
        reason = f"append_dim={dim!r}: the stored variables {missing} have it too and would be left shorter"
        raise DatasetError(variable=missing[0], url=url, reason=reason, hint="append to all of them at once")
    if len(set(lengths.values())) > 1:
        hint = "an append did not come to its end: write the shorter ones again"
        raise DatasetError(variable="", url=url, reason=f"lengths of {dim!r} differ in the store: {lengths}", hint=hint)


def _check_new(target: _WriteTarget, name: str, variable: Variable, url: str) -> None:
    """Raise `DatasetError` unless a variable that is not in the store may be added."""
    if not target.adds or target.cuts:
        reason = f"not in the store, which has {', '.join(map(repr, sorted(target.arrays))) or 'no variables'}"
        raise DatasetError(variable=name, url=url, reason=reason, hint="mode='a' adds variables")
    for dim, size in variable.sizes.items():
        length = target.sizes.get(dim, size)
        if size != length and dim != target.append_dim:
            reason = f"not in the store, where {dim!r} has length {length}, got {size}"
            raise DatasetError(
                variable=name, url=url, reason=reason, hint="one dataset cannot have both: rename the dimension"
            )
    if target.append_dim in variable.dims:
        reason = f"not in the store, and holds only the appended elements along {target.append_dim!r}"
        raise DatasetError(variable=name, url=url, reason=reason, hint="append first, then add it whole with mode='a'")


def _plan_known(plan: DatasetPlan, target: _WriteTarget, name: str, variable: Variable) -> None:
    array = target.arrays[name]
    if name in target.labelled.asked:
        hint = "leave it out of encoding=, or replace the store with mode='w'"
        raise DatasetError(variable=name, url=array.url, reason="is stored already, with its own encoding", hint=hint)
    if target.keeps and target.append_dim not in (dims := dimension_names(name, array)) and dims != (name,):
        return
    stored = StoredVariable.of(name, array, variable, target.arrays)
    variable = match_dims(name, variable, stored)
    region = target.region_of(stored.dims, array.shape, variable.sizes)
    lengths = tuple(cut.stop - cut.start for cut in region)
    if variable.shape != lengths:
        reason = f"has lengths {dict(variable.sizes)}, but {dict(zip(stored.dims, lengths, strict=True))} in the store"
        raise DatasetError(
            variable=name, url=array.url, reason=reason, hint="region= writes a region, append_dim= appends"
        )
    if _is_fixed(target, name, stored):
        stored.compare(with_checked_blocks(variable.data) if variable.chunks else variable.to_numpy(), array, region)
        plan.unchanged.append(array.path)
        return
    if target.append_dim in stored.dims:
        shape = tuple(max(n, cut.stop) for n, cut in zip(array.shape, region, strict=True))
        plan.growth.append(Growth(array.path, target.stored[name].metadata, array.shape, shape))
        array = replace(array, metadata=resized(array.metadata, shape))
    plan.variables.append(VariablePlan(array.path, array, region, stored.encoded(variable), stored=target.stored[name]))


def _is_fixed(target: _WriteTarget, name: str, stored: StoredVariable) -> bool:
    """Return whether a variable must not change: it locates the region that is written, or is outside it."""
    if not target.partial or target.append_dim in stored.dims:
        return False
    return stored.dims == (name,) or not target.cuts.keys() & set(stored.dims)


def check_new_labels(groups: Iterable[LabelledGroup], root: StoredGroup, dim: Hashable) -> None:
    """Raise `DatasetError` where labels along `dim` are stored already, with the first of them and the way out.

    Labels are those of the index coordinate, as they are stored: in its units and dtype.
    """
    name = str(dim)
    for labelled in groups:
        array = stored_arrays(root, labelled.path).get(name)
        if array is None or name not in labelled.variables or dimension_names(name, array) != (dim,):
            continue
        variable = labelled.variables[name]
        if variable.dims != (dim,) or not variable.size or not array.size:
            continue
        new = StoredVariable.of(name, array, variable).encode(variable.to_numpy())
        repeated = _are_in(new, Array(array)[...])
        if repeated.any():
            labels = labelled.dataset[dim].to_numpy()[repeated]
            shown = ", ".join(map(str, labels[:_SHOWN])) + (", …" if len(labels) > _SHOWN else "")
            reason = f"append_dim={dim!r}: {len(labels)} of {len(repeated)} labels are stored already: {shown}"
            hint = (
                f"leave them out, ds.sel({name}=~ds[{name!r}].isin(stored[{name!r}])), or overwrite them: region='auto'"
            )
            raise DatasetError(variable=name, url=root.url, reason=reason, hint=hint)


def _are_in(labels: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool]:
    if labels.dtype.kind not in "TUSO":
        return np.isin(labels, others)
    known = set(others.tolist())
    return np.fromiter((label in known for label in labels.tolist()), np.bool, len(labels))
