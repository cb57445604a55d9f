from chunkmill import create_array
from chunkmill.nodes.array import axis_names, unknown_dimensions
from chunkmill.stores.memory import MemoryStore


def test_axes_without_names() -> None:
    named = create_array(MemoryStore(), shape=(2, 3), dtype="u1", dimension_names=["t", None])
    assert axis_names(named) == ("t", None)
    assert axis_names(create_array(MemoryStore(), shape=(2, 3), dtype="u1")) == (None, None)


def test_at_most_twenty_dimensions_are_shown() -> None:
    text = str(unknown_dimensions("region", ["x"], [f"d{i}" for i in range(99)], "the arrays", "give slices"))
    assert text.startswith("region= names dimensions ['x'], where those of the arrays are ['d0', ")
    assert "'d19']" in text
    assert "'d20'" not in text
    text = str(unknown_dimensions("region", ["x"], [], "the arrays", "give slices"))
    assert text.endswith("the arrays have no names: give slices")
