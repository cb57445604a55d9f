"""Result of writing a dataset: a report for each variable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dask.utils import format_bytes

from chunkmill.dask_arrays.write import WriteReport
from chunkmill.display.report import ReportMixin

__all__ = ["DatasetReport"]


@dataclass(frozen=True, slots=True, repr=False)
class DatasetReport(ReportMixin):
    """Result of `write_dataset`.

    Attributes
    ----------
    variables
        A `WriteReport` for each variable written, by its path in the store.
    unchanged
        Paths of variables that equal what is stored, so that they were not written.
    """

    variables: Mapping[str, WriteReport] = field(default_factory=dict)
    unchanged: tuple[str, ...] = ()

    def _sum(self, name: str) -> int:
        return sum(getattr(each, name) for each in self.variables.values())

    @property
    def n_keys(self) -> int:
        """Store keys written, or deleted because their chunks hold the fill value only."""
        return self._sum("n_keys")

    @property
    def n_partial(self) -> int:
        """Of these, store keys covered partly: read, changed and written back under a lock."""
        return self._sum("n_partial")

    @property
    def n_regrouped(self) -> int:
        """Dask blocks that were rechunked before writing because they were not aligned to store keys."""
        return self._sum("n_regrouped")

    @property
    def bytes_written(self) -> int:
        """Encoded bytes stored."""
        return self._sum("bytes_written")

    def joined(self, other: DatasetReport) -> DatasetReport:
        """Return the report of two writes, one after the other."""
        sums = {path: one + other.variables[path] for path, one in self.variables.items() if path in other.variables}
        variables = {**self.variables, **other.variables, **sums}
        unchanged = dict.fromkeys((*self.unchanged, *other.unchanged))
        return DatasetReport(variables, tuple(path for path in unchanged if path not in variables))

    def _title(self) -> str:
        return "write_dataset: done"

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("store keys", f"{self.n_keys:,}: of these {self.n_partial:,} changed in part"),
            ("written", format_bytes(self.bytes_written)),
            ("unchanged", ", ".join(self.unchanged) or "none"),
        ]

    def _tables(self) -> list[list[tuple[str, ...]]]:
        rows = [
            (path, f"{one.n_keys:,}", f"{one.n_partial:,}", format_bytes(one.bytes_written))
            for path, one in self.variables.items()
        ]
        return [[("variable", "store keys", "in part", "written"), *rows]]
