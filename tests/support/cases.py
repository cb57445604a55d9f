"""A table of cases that run as one test: for those that differ in a value, not in what they need set up."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from chunkmill.errors import MetadataError
from chunkmill.stores.memory import MemoryStore


def cases(names, rows):
    """Run a test with each row in turn, as ``parametrize`` would with a test for each; a failure names its row.

    Of a class, each of its tests.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [row.values if hasattr(row, "marks") else row if len(names) > 1 else (row,) for row in rows]

    def decorate(test):
        if inspect.isclass(test):
            for name, method in list(vars(test).items()):
                if name.startswith("test"):
                    setattr(test, name, decorate(method))
            return test

        def run(*args, **fixtures):
            assert rows
            skipped = []
            for i, row in enumerate(rows):
                values = dict(zip(names, row, strict=True))
                with pytest.MonkeyPatch.context() as patch:
                    own = {name: fresh(name, value, i, patch) for name, value in fixtures.items()}
                    try:
                        test(*args, **own, **values)
                    except pytest.skip.Exception as skip:
                        skipped.append(skip)
                    except BaseException as error:
                        error.add_note(f"case {i}: " + ", ".join(f"{k}={v!r:.200}" for k, v in values.items()))
                        raise
            if len(skipped) == len(rows):
                raise skipped[0]

        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(run, name, getattr(test, name))
        run.pytestmark = getattr(test, "pytestmark", [])
        given = inspect.signature(test)
        run.__signature__ = given.replace(parameters=[p for p in given.parameters.values() if p.name not in names])
        return run

    return decorate


def refusals(rows, call, *, key=None, error=MetadataError):
    """Return a test of rows (words, given): `call` of what is given raises the error, with those words, of that key."""

    @cases(("words", "given"), rows)
    def test(words, given):
        with pytest.raises(error) as caught:
            call(given)
        assert words in str(caught.value)
        assert key in (None, caught.value.key)

    return test


def fresh(name, value, i, patch):
    """Give each row a folder and patches of its own."""
    if name == "monkeypatch":
        return patch
    if name == "url":
        return f"{value}-{i}" if isinstance(value, str) else type(value)()
    if name == "store" and type(value) is MemoryStore and not value.list_dir(""):
        return MemoryStore()
    if name == "tmp_path":
        value = Path(value, str(i))
        value.mkdir()
    return value
