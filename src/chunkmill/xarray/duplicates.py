"""Find labels of an append that are stored already: an append that runs twice would store its elements twice.

Labels are those of the index coordinate of the appended dimension, as they are stored: in its units and dtype.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from xarray import Dataset

from chunkmill.errors import DatasetError
from chunkmill.nodes.array import Array
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.xarray.backend import dimension_names
from chunkmill.xarray.stored_variable import StoredVariable
from chunkmill.xarray.write_plan import LabelledGroup, join, stored_arrays

__all__ = ["Duplicates", "OnDuplicate", "check_choice", "find_duplicates"]

OnDuplicate = Literal["error", "skip", "replace"]

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Elements of a dataset whose labels are stored already.

    Attributes
    ----------
    labelled
        The dataset, and the path of its group.
    repeated
        By element along the dimension: whether its label is stored.
    positions
        Where the labels are stored, in the order of the store; more than those repeated where the store repeats them.
    in_order
        They are stored once each, in the order of the dataset, one after the other.
    """

    labelled: LabelledGroup
    dim: Hashable
    url: str
    repeated: NDArray[np.bool]
    positions: NDArray[np.intp]
    in_order: bool

    def error(self, *, is_tree: bool) -> DatasetError:
        """Return the error that names the first of them and the ways out."""
        labels = self.labelled.dataset[self.dim].to_numpy()[self.repeated]
        shown = ", ".join(map(str, labels[:_SHOWN])) + (", …" if len(labels) > _SHOWN else "")
        reason = f"append_dim={self.dim!r}: {len(labels)} of {len(self.repeated)} labels are stored already: {shown}"
        hint = "on_duplicate='skip' appends the others, on_duplicate='replace' overwrites what is stored for these"
        if is_tree:
            hint = f"append the groups of a tree one by one, as datasets: {hint}"
        return DatasetError(variable=str(self.dim), url=self.url, reason=reason, hint=hint)

    def paths(self) -> tuple[str, ...]:
        """Return the paths of the variables along the dimension."""
        names = (name for name, variable in self.labelled.variables.items() if self.dim in variable.dims)
        return tuple(join(self.labelled.path, name) for name in names)

    def others(self) -> Dataset | None:
        """Return the elements whose labels are new; ``None`` when there are none."""
        return None if self.repeated.all() else self.labelled.dataset.isel({self.dim: ~self.repeated})

    def replaced(self) -> tuple[Dataset, slice]:
        """Return the variables along the dimension whose elements replace stored ones, and the region of those."""
        if not self.in_order:
            reason = f"append_dim={self.dim!r}: the labels that are stored already are not one run in the same order"
            hint = "write them with region= first, then append the others with on_duplicate='skip'"
            raise DatasetError(variable=str(self.dim), url=self.url, reason=reason, hint=hint)
        dataset = self.labelled.dataset.isel({self.dim: self.repeated})
        without = [name for name, variable in dataset.variables.items() if self.dim not in variable.dims]
        return dataset.drop_vars(without), slice(int(self.positions[0]), int(self.positions[-1]) + 1)


def check_choice(on_duplicate: str, append_dim: Hashable | None, *, compute: bool) -> None:
    """Raise `ValueError` for a choice that there is not, without an append, or of two writes that are not computed."""
    if on_duplicate not in get_args(OnDuplicate):
        raise ValueError(f"on_duplicate={on_duplicate!r}: expected 'error', 'skip' or 'replace'")
    if append_dim is None and on_duplicate != "error":
        raise ValueError(f"on_duplicate={on_duplicate!r} is about appends: name the dimension with append_dim=")
    if on_duplicate == "replace" and not compute:
        raise ValueError("on_duplicate='replace' writes twice: leave compute=False out, or skip them")


def find_duplicates(
    groups: Iterable[LabelledGroup], root: StoredGroup | None, dim: Hashable | None, on_duplicate: OnDuplicate
) -> Duplicates | None:
    """Return what an append along `dim` would store twice, of a single dataset; ``None`` for nothing.

    Raises
    ------
    DatasetError
        There is some, and it is an error, or belongs to a tree.
    """
    if root is None or dim is None:
        return None
    groups = tuple(groups)
    found = [each for each in (_of_group(labelled, root, dim) for labelled in groups) if each is not None]
    if found and (on_duplicate == "error" or len(groups) > 1):
        raise found[0].error(is_tree=len(groups) > 1)
    return found[0] if found else None


def _of_group(labelled: LabelledGroup, root: StoredGroup, dim: Hashable) -> Duplicates | None:
    """Return what is stored already of one dataset; ``None`` for nothing, or without an index coordinate."""
    name = str(dim)
    array = stored_arrays(root, labelled.path).get(name)
    if array is None or name not in labelled.variables or dimension_names(name, array) != (dim,):
        return None
    variable = labelled.variables[name]
    if variable.dims != (dim,) or not variable.size or not array.size:
        return None
    new = StoredVariable.of(name, array, variable).encode(variable.to_numpy())
    stored: NDArray[Any] = Array(array)[...]
    repeated = _are_in(new, stored)
    if not repeated.any():
        return None
    positions = np.flatnonzero(_are_in(stored, new))
    is_run = len(positions) == repeated.sum() == positions[-1] - positions[0] + 1
    in_order = bool(is_run and (stored[positions] == new[repeated]).all())
    return Duplicates(labelled, dim, root.url, repeated, positions, in_order)


def _are_in(labels: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool]:
    if labels.dtype.kind not in "TUSO":
        return np.isin(labels, others)
    known = set(others.tolist())
    return np.fromiter((label in known for label in labels.tolist()), np.bool, len(labels))
