"""Find labels of an append that are stored already: an append that runs twice would store its elements twice.

Labels are those of the index coordinate of the appended dimension, as they are stored: in its units and dtype.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import DatasetError
from chunkmill.nodes.array import Array
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.xarray.backend import dimension_names
from chunkmill.xarray.stored_variable import StoredVariable
from chunkmill.xarray.write_plan import LabelledGroup, stored_arrays

__all__ = ["check_new_labels"]

_SHOWN = 3


def check_new_labels(groups: Iterable[LabelledGroup], root: StoredGroup, dim: Hashable) -> None:
    """Raise `DatasetError` where labels along `dim` are stored already, with the first of them and the way out."""
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
