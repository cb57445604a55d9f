"""Rows of plans and reports: what people ask first comes first, and nothing is said of what is not there."""

import chunkmill as cm
from chunkmill.jobs.plan import cost_rows
from chunkmill.jobs.work import JobCounts
from chunkmill.stores.memory import MemoryStore

COUNTS = {
    "n_tasks": 17,
    "bytes_read": 300 << 20,
    "bytes_written": 200 << 20,
    "n_requests": 329,
    "peak_memory_bytes": 1 << 27,
}


def test_bytes_and_memory_come_first_and_in_this_order():
    rows = cost_rows(JobCounts(**COUNTS, n_keys=9, actions={"rechunk": 9}), [("memory", "128.00 MiB")])
    assert rows == [
        ("read", "300.00 MiB"),
        ("written", "200.00 MiB, 9 store keys"),
        ("memory", "128.00 MiB"),
        ("tasks", "17, with 329 requests"),
        ("actions", "rechunk 9"),
    ]


def test_intermediate_files_have_a_row_of_their_own():
    rows = dict(cost_rows(JobCounts(**COUNTS, bytes_temporary=100 << 20, bytes_temporary_read=100 << 20), []))
    assert rows["temporary"] == "100.00 MiB of intermediate files, written and read once"
    assert (rows["read"], rows["written"]) == ("200.00 MiB", "100.00 MiB, 0 store keys")
    assert "actions" not in rows


def test_reading_again_is_said():
    assert (
        dict(cost_rows(JobCounts(**COUNTS, read_amplification=2.96), []))["read"] == "300.00 MiB; each element 3 times"
    )
    assert dict(cost_rows(JobCounts(**COUNTS, read_amplification=1.001), []))["read"] == "300.00 MiB"


def six_arrays(store):
    for number in range(6):
        cm.create_array(store, f"data/variable_{number}", shape=(50, 40, 30), dtype="f8", chunks=(1, 40, 30))
    return store


def test_a_plan_of_any_size_has_fifteen_lines_and_explains_the_rest():
    plan = cm.plan_rechunk(six_arrays(MemoryStore()), MemoryStore(), chunks=(50, 8, 8))
    lines = repr(plan).splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 100
    assert "plan.explain()" in lines[-1]
    explained = plan.explain()
    assert all(f"data/variable_{number}" in explained for number in range(6))
    assert repr(explained) == str(explained)
    assert len(explained.splitlines()) > 15


def test_numbers_and_nouns_agree():
    cm.create_array(store := MemoryStore(), "a", shape=(4, 4), dtype="f8", chunks=(1, 4))
    text = str(cm.plan_rechunk(store, MemoryStore(), chunks=(4, 4)).explain())
    assert "1 array in 1 group" in text or "1 array" not in text
    assert " 1 times" not in text
    assert "1 store key" in text
    assert "1 store keys" not in text
