"""What every golden document says is said again when it is written anew: parse, emit, parse gives the same description."""

import numpy as np
import pytest
from interop.corpus import BY_FORMAT, BY_NAME
from interop.verdict import plain

import chunkmill as cm
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import ArrayMetadata

pytestmark = pytest.mark.filterwarnings("ignore:.*read as:UserWarning")  # the draft's extension types


def said(metadata):
    """Everything that a description says; scalars by their bits."""
    fill = metadata.fill_value
    bits = fill if fill is None or isinstance(fill, (str, bytes)) else np.asarray(fill, metadata.dtype).tobytes()
    attributes = plain(dict(metadata.attributes))
    return (
        metadata.dtype, metadata.chunk_grid, metadata.chunk_keys, metadata.codecs, bits, metadata.edge_chunks,
        metadata.dimension_names, attributes,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:a dimension name occurs twice")
@pytest.mark.parametrize("fmt", BY_FORMAT)
def test_arrays(fmt, subtests):
    documents_format = get_format(fmt)
    for golden in (each for name in BY_FORMAT[fmt] for each in BY_NAME[name]):
        for expected in golden.arrays:
            with subtests.test(f"{golden.id}: {expected.path!r}"):
                metadata = golden.open(expected.path).metadata
                documents = documents_format.emit_array("some/where", metadata)
                again = documents_format.parse_array("some/where", documents)
                assert isinstance(again, ArrayMetadata)
                assert said(again) == said(metadata)
                assert documents_format.emit_array("some/where", again) == documents


@pytest.mark.parametrize("fmt", BY_FORMAT)
def test_groups(fmt, subtests):
    documents_format = get_format(fmt)
    for golden in (each for name in BY_FORMAT[fmt] for each in BY_NAME[name]):
        for path, attributes in golden.case.groups.items():
            with subtests.test(f"{golden.id}: {path!r}"):
                group = golden.open(path)
                assert isinstance(group, cm.Group)
                documents = documents_format.emit_group("some/where", group.metadata)
                again = documents_format.parse_group("some/where", documents)
                assert plain(dict(again.attributes)) == plain(dict(attributes))
