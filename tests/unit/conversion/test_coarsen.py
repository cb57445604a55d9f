"""The arithmetic of two cuts of one axis, against counting."""

from hypothesis import given
from hypothesis import strategies as st
from support.strategies import runs_axes

from chunkmill.conversion.coarsen import MeasuredAxis, Meeting, coarsen, meet, multiples
from chunkmill.model.grid import RegularAxis, RunsAxis


def borders(axis):
    """First and last element of every chunk, cropped, by walking."""
    return [(axis.start(i), min(axis.start(i) + axis.length(i), axis.size)) for i in range(axis.n_chunks)]


@st.composite
def axis_pairs(draw):
    """Two cuts of one axis."""
    first = draw(runs_axes() | st.builds(RegularAxis, st.integers(0, 60), st.integers(1, 12)))
    if draw(st.booleans()):
        return first, RegularAxis(first.size, draw(st.integers(1, 12)))
    lengths = draw(st.lists(st.integers(1, 7), min_size=first.size, max_size=first.size))
    return first, RunsAxis(first.size, tuple((n, 1) for n in lengths))


@given(axis_pairs())
def test_meet_counts_as_walking_does(pair):
    chunks, blocks = pair
    meeting = meet(MeasuredAxis.of(chunks), MeasuredAxis.of(blocks))
    touching = [(c, b) for c in borders(chunks) for b in borders(blocks) if max(c[0], b[0]) < min(c[1], b[1])]
    assert meeting.n_pairs == len(touching)
    assert meeting.covered == sum(stop - start for (start, stop), _ in touching)


@given(axis_pairs(), st.integers(1, 9))
def test_coarsen_joins_chunks_in_order(pair, multiple):
    axis, _ = pair
    chunks = borders(axis)
    groups = [chunks[i : i + multiple] for i in range(0, len(chunks), multiple)]
    assert borders(coarsen(axis, multiple)) == [(group[0][0], group[-1][1]) for group in groups]


@given(axis_pairs())
def test_multiples_reach_from_one_chunk_to_all(pair):
    axis, other = pair
    found = multiples(axis, other)
    assert found == sorted(set(found))
    assert found[0] == 1
    assert found[-1] == max(1, axis.n_chunks)


def test_long_axes_take_arithmetic_alone():
    huge = MeasuredAxis.of(RegularAxis(10**15, 10**3)), MeasuredAxis.of(RegularAxis(10**15, 10**5))
    assert meet(*huge) == Meeting(10**12, 10**15)
    assert len(multiples(RegularAxis(10**9, 7), RegularAxis(10**9, 1_000))) < 200
