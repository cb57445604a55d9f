"""The task of a stage in the process that runs it."""

import pickle
import sys

from chunkmill.runtime.task import LocalStage, PackedStage


def test_a_packed_stage_is_opened_once():
    packed = PackedStage.of(LocalStage(len, "abc", None, 7), None)
    there = pickle.loads(pickle.dumps(packed))
    assert there.open() is there.open()
    assert (there.open().number, there.open().common) == (7, "abc")
    assert there.open().open() is there.open()


def test_what_a_script_defines_is_packed_by_value(monkeypatch):
    """Workers have another ``__main__``: a store or a codec of a notebook was not found there."""

    class Codec:
        level = 7

    Codec.__module__, Codec.__qualname__ = "__main__", "CodecOfScript"
    monkeypatch.setattr(sys.modules["__main__"], "CodecOfScript", Codec, raising=False)
    packed = PackedStage.of(LocalStage(len, Codec(), None, 0), None)
    monkeypatch.delattr(sys.modules["__main__"], "CodecOfScript")
    assert packed.open().common.level == 7
