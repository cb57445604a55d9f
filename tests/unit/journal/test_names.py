"""Names of journals and runs."""

from hashlib import sha256

from chunkmill.journal.plans import JOB_PREFIX, TAG_PREFIX, fingerprint, journal_prefix, new_run, run_tag, staged_prefix


def test_journals_are_named_after_what_they_write():
    names = {journal_prefix("a"), journal_prefix("a/b"), journal_prefix("a", "x")}
    assert len(names) == 3
    assert all(name.startswith(JOB_PREFIX) and name.endswith("/") and name.count("/") == 1 for name in names)
    assert staged_prefix("a", "run").startswith(journal_prefix("a"))


def test_runs_are_never_named_the_same():
    assert new_run() != new_run()
    assert run_tag("x") == f"{TAG_PREFIX}x"


def test_a_fingerprint_is_that_of_the_whole_text():
    for parts in ((), (1,), ("a", [3, (4,)], {"x": [1]}), ([(1,), (2, 3), []], (), ((1,),), [5])):
        assert fingerprint(*parts) == sha256(repr(parts).encode()).hexdigest()
