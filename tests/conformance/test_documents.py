"""What every golden document says is said again when it is written anew: parse, emit, parse gives the same description."""

import numpy as np
import pytest
from interop.corpus import BY_NAME
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


WITH_GROUPS = {name: goldens for name, goldens in BY_NAME.items() if any(golden.groups for golden in goldens)}


@pytest.mark.filterwarnings("ignore:a dimension name occurs twice")
@pytest.mark.parametrize("goldens", BY_NAME.values(), ids=BY_NAME)
def test_array(goldens):
    for golden, expected in [(each, array) for each in goldens for array in each.arrays]:
        documents_format = get_format(golden.format)
        metadata = golden.open(expected.path).metadata
        documents = documents_format.emit_array("some/where", metadata)
        again = documents_format.parse_array("some/where", documents)
        assert isinstance(again, ArrayMetadata)
        assert said(again) == said(metadata)
        assert documents_format.emit_array("some/where", again) == documents


@pytest.mark.parametrize("goldens", WITH_GROUPS.values(), ids=WITH_GROUPS)
def test_group(goldens):
    for golden, path in [(each, path) for each in goldens for path in each.groups]:
        documents_format, attributes = get_format(golden.format), golden.groups[path]
        group = golden.open(path)
        assert isinstance(group, cm.Group)
        again = documents_format.parse_group("some/where", documents_format.emit_group("some/where", group.metadata))
        assert plain(dict(again.attributes)) == plain(dict(attributes))
