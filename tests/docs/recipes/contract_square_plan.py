"""The plan of squaring covers every chunk once."""

import pytest
from chunkmill.squaring.plan import plan_tasks


@pytest.mark.parametrize("n_chunks", [0, 1, 4, 5, 17])
@pytest.mark.parametrize("chunks_a_task", [1, 4, 100])
def test_every_chunk_is_squared_once(n_chunks, chunks_a_task):
    tasks = plan_tasks(n_chunks, chunks_a_task)
    assert [number for task in tasks for number in range(*task)] == list(range(n_chunks))
    assert all(0 < stop - start <= chunks_a_task for start, stop in tasks)
