from __future__ import annotations

import inspect

import pytest

from chunkmill.stores.base import Store
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.wrapper import StoreWrapper

METHODS = [name for name, each in vars(Store).items() if inspect.isfunction(each) and not name.startswith("_")]


class Recording:
    url = "mine://"
    is_remote = True
    compares_versions = False

    def __getattr__(self, name: str):
        if name not in METHODS:
            raise AttributeError(name)
        return lambda *args: (name, args)


@pytest.mark.parametrize("name", METHODS)
def test_every_call_is_passed_on(name):
    method = getattr(StoreWrapper(Recording()), name)
    args = tuple(range(len(inspect.signature(method).parameters)))
    passed = method(*args)
    assert passed in (None, (name, args))
    assert (passed is None) == (inspect.signature(method).return_annotation == "None")


def test_what_a_store_of_ones_own_does_not_say():
    wrapper = StoreWrapper(Recording())
    assert (wrapper.url, wrapper.is_remote, wrapper.compares_versions) == ("mine://", True, False)
    assert wrapper.replaces_atomically


def test_a_call_that_returns_nothing_is_passed_on():
    store = MemoryStore()
    wrapper = StoreWrapper(store)
    wrapper.set("a/b", b"1")
    wrapper.set("a/c", b"2")
    wrapper.delete("a/b")
    assert list(store.list_prefix("")) == ["a/c"]
    wrapper.delete_prefix("a/")
    assert list(store.list_prefix("")) == []
