"""Tasks of a stage that are on record when their job is resumed: which of them are done again.

Those whose values are not as on record, and those whose inputs have changed since (`chunkmill.journal.inputs`). A few
are compared before the stage begins, many after all new tasks: by tasks, or where the inputs' requests cost latency by
the client, which lists them once. Not here: comparing values (`chunkmill.journal.record_files`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any

from chunkmill.journal.inputs import Listings, inputs_of, mark_now
from chunkmill.journal.journal import FEW_RECORDS, Journal
from chunkmill.journal.record_files import GROUP
from chunkmill.journal.records import read_record
from chunkmill.runtime.stage import Stage, tasks_to_run
from chunkmill.stores.read_versions import has_versions

__all__ = ["ResumedTasks"]


class ResumedTasks:
    """The tasks of one stage that are on record.

    Attributes
    ----------
    on_record
        Those that are not done again, as far as is known.
    """

    def __init__(
        self, journal: Journal | None, stage: Stage, number: int, done: Collection[int], unchecked: Collection[int]
    ) -> None:
        self.on_record = {*done, *unchecked}
        self._journal, self._stage, self._number = journal, stage, number
        self._values, self._inputs = set(unchecked), set[int]()  # to be compared by tasks
        self._listed = False

    def check(self, *, redone: bool) -> None:
        """Compare the inputs of a few with what there is now; leave many to the end.

        With `redone`, tasks of an earlier stage were done again: those that may depend on it, and cannot tell, are.
        """
        stage = self._stage
        if self._journal is None or stage.inputs is None or not self.on_record:
            return
        stores = [each.store for each in inputs_of(stage.inputs, stage.common, stage.tasks[:1])]
        if redone:
            self.forget(self._changed(unknown=True))
        elif not all(map(has_versions, stores)):
            return
        elif any(store.is_remote for store in stores):
            self._listed = True
        elif len(self.on_record) > FEW_RECORDS:
            self._inputs = set(self.on_record)
        else:
            self.forget(self._changed())

    @property
    def n_settled(self) -> int:
        """Number of those that no task compares."""
        return len(self.on_record - self._values - self._inputs)

    def forget(self, tasks: Collection[int]) -> None:
        """Take tasks off the record, which are to be done again."""
        if self._journal is not None and tasks:
            self._journal.records.forget(self._number, tasks)
        self.off_record(tasks)

    def off_record(self, tasks: Collection[int]) -> None:
        """Note that tasks are off the record."""
        for each in (self.on_record, self._values, self._inputs):
            each.difference_update(tasks)

    def check_listed(self) -> set[int]:
        """Compare the inputs with a listing of them; return the tasks that are to be done again."""
        changed = self._changed() if self._listed else set[int]()
        self.forget(changed)
        return changed

    def comparisons(self) -> Iterator[tuple[list[int], list[Sequence[Any]] | None, bool]]:
        """Yield the arguments of each task that compares records, of neighbours: they may be in one object."""
        for _, group in groupby(sorted(self._values | self._inputs), lambda task: task // GROUP):
            for (of_inputs, of_values), tasks in groupby(
                group, lambda task: (task in self._inputs, task in self._values)
            ):
                numbers = [*tasks]
                specs = [each for _, each in tasks_to_run(self._stage, only=numbers)] if of_inputs else None
                yield numbers, specs, of_values

    def _changed(self, *, unknown: bool = False) -> set[int]:
        """Return those that have read something else than there is now; with `unknown`, or may have."""
        stage, listings, changed = self._stage, Listings(), set[int]()
        if self._journal is None or stage.inputs is None:
            return changed
        for _, group in groupby(sorted(self.on_record), lambda task: task // GROUP):
            numbers = [*group]
            values = self._journal.records.read_many(self._number, numbers)
            for (task, specs), (_, value) in zip(tasks_to_run(stage, only=numbers), values, strict=True):
                record = read_record(value or b"")
                mark = None if record is None else record.reads
                now = None if mark is None else mark_now(stage.inputs, stage.common, specs, listings)
                if unknown if now is None else now != mark:
                    changed.add(task)
        return changed
