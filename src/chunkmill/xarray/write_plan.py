"""Plan the write of a dataset: encode, describe and compare every variable before anything is written.

Whatever can fail without writing fails here: variables that do not fit the format or the store, values that the stored
encoding cannot represent (P1), coordinates that differ. Not here: the writing (`chunkmill.xarray.write`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from xarray import Dataset, DataTree, Variable, conventions

from chunkmill.array.selection import full_region
from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.kinds import lowered_together
from chunkmill.errors import DatasetError, NodeExists, NodeNotFound, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.model.grid import Region
from chunkmill.model.metadata import GroupMetadata
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import join_path
from chunkmill.nodes.opening import array_at
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.nodes.target import Target
from chunkmill.stores.base import Store
from chunkmill.xarray.backend import dimension_names
from chunkmill.xarray.new_variable import ENCODING_FAULTS, describe_variable, json_attributes
from chunkmill.xarray.publication import Growth, UnfinishedAppend, merged_attributes, resized
from chunkmill.xarray.stored_variable import StoredVariable, find_region, match_dims, stored_sizes

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
    variables: dict[Any, Variable]
    attributes: Mapping[Hashable, Any]
    asked: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class VariablePlan:
    """Encoded values, of numpy or dask.array, and the region of the array to write them to.

    Attributes
    ----------
    stored
        The array as it is in the store; ``None`` for a new one.
    """

    array: StoredArray
    region: Region
    data: Any
    write_empty: bool
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
    new_groups
        Metadata of new groups by path.
    attributes
        Path of an existing group -> attributes that the write adds.
    growth
        Arrays that an append makes longer.
    pending
        Path of an existing group -> the unfinished append that is marked there.
    region, append_dim
        As in `write_dataset`.
    adds
        Whether variables that a group has not are new ones.
    keeps
        Stored variables without `append_dim` are left unchanged, and only index coordinates are compared.
    write_empty
        Whether chunks of fill values are stored, where an encoding does not say it.
    """

    store: Store
    path: str
    documents_format: Format
    region: Any = None
    append_dim: Hashable | None = None
    adds: bool = True
    keeps: bool = False
    write_empty: bool = False
    variables: list[VariablePlan] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    new_groups: dict[str, GroupMetadata] = field(default_factory=dict)
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    growth: list[Growth] = field(default_factory=list)
    pending: dict[str, UnfinishedAppend] = field(default_factory=dict)

    @property
    def new_arrays(self) -> list[StoredArray]:
        """Arrays that are not in the store."""
        return [planned.array for planned in self.variables if planned.stored is None]

    def target(self, *, overwrite: bool, exists: bool) -> Target | None:
        """Return the new nodes, of a group that is new itself or `exists`; ``None`` where there are none."""
        arrays, group = self.new_arrays, self.path if exists else None
        first = next(iter((*self.new_groups, *(array.path for array in arrays))), None)
        if first is None:
            return None
        return Target(self.store, first, self.documents_format, arrays, self.new_groups, overwrite, group)

    def add(self, labelled: LabelledGroup, name: str, variable: Variable) -> None:
        """Plan a new array."""
        path, asked = join_path(labelled.path, name), labelled.asked.get(name)
        new = describe_variable(self.documents_format, name, variable, asked=asked, url=self.store.url)
        array = array_at(self.store, path, new.metadata, self.documents_format)
        data = StoredVariable.of(name, array, variable).encoded(variable) if new.is_encoded else variable.data
        empty = self.write_empty if new.write_empty is None else new.write_empty
        self.variables.append(VariablePlan(array, full_region(array.shape), data, empty))


def labelled_groups(
    data: Dataset | DataTree, path: str, encoding: Mapping[str, Any] | None, url: str
) -> list[LabelledGroup]:
    """Return the datasets of `data` with their paths, parents first; check their names, and those in `encoding`.

    Dask arrays in them are of `dask.array.core`, all optimized together.
    """
    encoding = dict(encoding or {})
    if isinstance(data, Dataset):
        groups = [_labelled(data, path, encoding, url)]
    elif isinstance(data, DataTree):
        groups = []
        for relative, node in data.subtree_with_keys:
            at = path if node is data else join_path(path, relative)
            groups.append(_labelled(node.to_dataset(inherit=node is data), at, encoding.pop(node.path, {}), url))
        if encoding:
            hint = "the encoding of a tree is a mapping by group ('/' for the root), then by variable"
            reason = f"encoding names unknown groups {sorted(encoding)}"
            raise DatasetError(variable="", url=url, reason=reason, hint=hint)
    else:
        raise TypeError(f"expected a Dataset or a DataTree, got {type(data).__name__}: call to_dataset() on it")
    before = [variable._data for group in groups for variable in group.variables.values()]  # noqa: SLF001 - `data` reads
    values = zip(before, lowered_together(before), strict=True)
    for group in groups:
        for name, variable in group.variables.items():
            own, after = next(values)
            if after is not own:
                group.variables[name] = variable.copy(deep=False, data=after)
    return groups


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
    return LabelledGroup(path, dataset, dict(variables), attributes, dict(encoding))


@dataclass(frozen=True, slots=True)
class _WriteTarget:
    """Group to write into, existing or new (``None``), and the region of its arrays that is written."""

    labelled: LabelledGroup
    group: StoredGroup | None
    arrays: Mapping[str, StoredArray]  # as long as before an append that was interrupted
    stored: Mapping[str, StoredArray]
    append_dim: Hashable | None
    cuts: Mapping[Hashable, slice]
    sizes: Mapping[Hashable, int]  # of dimensions, in the store

    def region_of(self, dims: Iterable[Hashable], shape: Iterable[int], sizes: Mapping[Hashable, int]) -> Region:
        """Return the region of an array of `shape` that is written; it exceeds the shape along `append_dim`."""
        return tuple(
            slice(size, size + sizes[dim]) if dim == self.append_dim else self.cuts.get(dim, slice(0, size))
            for dim, size in zip(dims, shape, strict=True)
        )

    def is_fixed(self, name: str, dims: tuple[Hashable, ...]) -> bool:
        """Return whether a variable must not change: it locates the region that is written, or is outside it."""
        if self.append_dim in dims or (self.append_dim is None and not self.cuts):
            return False
        return dims == (name,) or not self.cuts.keys() & set(dims)


def plan_write(plan: DatasetPlan, groups: Sequence[LabelledGroup], root: StoredGroup | None = None) -> None:
    """Describe, encode and check all variables: of a new group, or against the arrays of the group `root`.

    Raises
    ------
    DatasetError
        A variable does not match what is stored.
    UnsupportedFeature
        The format cannot hold some new variables: all are named.
    """
    refused: dict[str, UnsupportedFeature] = {}
    has_dim = any(plan.append_dim in labelled.dataset.dims for labelled in groups)
    for labelled in groups:
        target = _target(plan, labelled, root, has_dim=has_dim)
        for name, variable in labelled.variables.items():
            if name in target.arrays:
                _plan_known(plan, target, name, variable)
                continue
            _check_new(plan, target, name, variable)
            try:
                plan.add(labelled, name, variable)
            except UnsupportedFeature as error:
                refused[join_path(labelled.path, name)] = error
        if plan.append_dim is not None:
            _check_new_labels(labelled, target.arrays, plan.append_dim, plan.store.url)
        elif target.group is not None and plan.adds and not target.cuts:
            added = json_attributes(labelled.attributes, "", join_path(plan.store.url, labelled.path))
            if merged_attributes(target.group.attributes, added) != dict(target.group.attributes):
                plan.attributes[labelled.path] = added
    if refused:
        features = "; ".join(f"{path!r}: {error.feature}" for path, error in refused.items())
        hint = "nothing was written; leave them out with drop_vars, convert them, or choose another format"
        raise UnsupportedFeature(format=plan.documents_format.name, feature=f"these variables: {features}", hint=hint)
    if root is not None and plan.append_dim is not None:
        grown = [each.path.removeprefix(root.path).strip("/") for each in plan.growth]
        UnfinishedAppend.of(root.metadata.attributes).check_repeated(str(plan.append_dim), grown, root.url)


def _target(plan: DatasetPlan, labelled: LabelledGroup, root: StoredGroup | None, *, has_dim: bool) -> _WriteTarget:
    plan.groups.append(labelled.path)
    group = None if root is None else _group_at(root, labelled.path, adds=plan.adds)
    arrays = stored = {} if group is None else group.arrays(lambda _: True)
    if root is None or group is None:
        metadata = GroupMetadata(json_attributes(labelled.attributes, "", join_path(plan.store.url, labelled.path)))
        plan.documents_format.emit_group(labelled.path, metadata)
        plan.new_groups[labelled.path] = metadata
    else:
        own = plan.pending[group.path] = UnfinishedAppend.of(group.metadata.attributes)
        unfinished = UnfinishedAppend.of(root.metadata.attributes).below(group.path.removeprefix(root.path).strip("/"))
        arrays = unfinished.joined(own).arrays_before(stored)
    cuts = {} if plan.region is None else find_region(labelled.dataset, plan.region, arrays, plan.store.url)
    if plan.append_dim is not None:
        _check_append(labelled, arrays, plan.append_dim, plan.store.url, has_dim=has_dim)
    return _WriteTarget(labelled, group, arrays, stored, plan.append_dim, cuts, stored_sizes(arrays))


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


def _check_new(plan: DatasetPlan, target: _WriteTarget, name: str, variable: Variable) -> None:
    """Raise `DatasetError` unless a variable that is not in the store may be added."""
    url = plan.store.url
    if not plan.adds or target.cuts:
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
    if plan.keeps and target.append_dim not in (dims := dimension_names(name, array)) and dims != (name,):
        return
    stored = StoredVariable.of(name, array, variable, target.arrays.values(), target.labelled.variables.values())
    variable = match_dims(name, variable, stored)
    region = target.region_of(stored.dims, array.shape, variable.sizes)
    lengths = tuple(cut.stop - cut.start for cut in region)
    if variable.shape != lengths:
        reason = f"has lengths {dict(variable.sizes)}, but {dict(zip(stored.dims, lengths, strict=True))} in the store"
        raise DatasetError(
            variable=name, url=array.url, reason=reason, hint="region= writes a region, append_dim= appends"
        )
    if target.is_fixed(name, stored.dims):
        stored.compare(variable.data, array, region)
        plan.unchanged.append(array.path)
        return
    if target.append_dim in stored.dims:
        shape = tuple(max(n, cut.stop) for n, cut in zip(array.shape, region, strict=True))
        plan.growth.append(Growth(array.path, target.stored[name].metadata, array.shape, shape))
        array = replace(array, metadata=resized(array.metadata, shape))
    plan.variables.append(
        VariablePlan(array, region, stored.encoded(variable), plan.write_empty, stored=target.stored[name])
    )


def _check_new_labels(labelled: LabelledGroup, arrays: Mapping[str, StoredArray], dim: Hashable, url: str) -> None:
    """Raise `DatasetError` where labels along `dim` are stored already, with the first of them and the way out.

    Labels are those of the index coordinate, as they are stored: in its units and dtype.
    """
    name = str(dim)
    array, variable = arrays.get(name), labelled.variables.get(name)
    if array is None or variable is None or dimension_names(name, array) != (dim,) or variable.dims != (dim,):
        return
    if not variable.size or not array.size:
        return
    new = StoredVariable.of(name, array, variable).encode(variable.to_numpy())
    repeated = np.isin(new, Array(array)[...])
    if repeated.any():
        labels = labelled.dataset[dim].to_numpy()[repeated]
        shown = ", ".join(map(str, labels[:_SHOWN])) + (", …" if len(labels) > _SHOWN else "")
        reason = f"append_dim={dim!r}: {len(labels)} of {len(repeated)} labels are stored already: {shown}"
        hint = f"leave them out, ds.sel({name}=~ds[{name!r}].isin(stored[{name!r}])), or overwrite them: region='auto'"
        raise DatasetError(variable=name, url=url, reason=reason, hint=hint)
