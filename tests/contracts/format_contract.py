"""What every format promises: subclass `FormatContract`, give it a format and some metadata that the format can hold."""

import json
import pickle

import numpy as np
import pytest

from chunkmill.errors import MetadataError
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NamedConfig

PATHS = ["", "a", "a/b.c"]


def same_fill(one, other, dtype):
    """Whether two fill values agree in every bit."""
    if one is None or other is None or dtype.kind in "OT":
        return type(one) is type(other) and one == other
    return np.array(one, dtype).tobytes() == np.array(other, dtype).tobytes()


def same_metadata(one, other):
    """Whether two descriptions agree, fill values bit for bit."""
    return (
        same_fill(one.fill_value, other.fill_value, one.dtype)
        and (one.dtype, one.chunk_grid, one.chunk_keys) == (other.dtype, other.chunk_grid, other.chunk_keys)
        and (one.codecs, one.dimension_names) == (other.codecs, other.dimension_names)
        and (one.edge_chunks, one.attributes) == (other.edge_chunks, other.attributes)
    )


def array_of_others(**changes):
    """Return the metadata of an array as it comes from another format."""
    members = {
        "dtype": np.dtype("i4"), "chunk_grid": ChunkGrid.regular((3, 5), (2, 4)), "fill_value": None,
        "chunk_keys": ChunkKeyEncoding("c/", "/", "c"),
        "codecs": (NamedConfig("bytes", {"endian": "little"}), NamedConfig("gzip", {"level": 5})),
    }  # fmt: skip
    return ArrayMetadata(**members | changes)


class FormatContract:
    """Subclasses set ``format`` and ``arrays``; ``refused`` holds metadata that the format cannot hold."""

    format = None
    arrays = ()
    refused = ()

    @pytest.fixture(params=PATHS)
    def path(self, request):
        return request.param

    def test_arrays_come_back(self, path):
        assert self.arrays
        for metadata in self.arrays:
            documents = self.format.emit_array(path, metadata)
            assert same_metadata(self.format.parse_array(path, documents), metadata)

    def test_groups_come_back(self, path):
        for metadata in (GroupMetadata(), GroupMetadata({"title": "Größe", "n": [1, {"x": None}]})):
            documents = self.format.emit_group(path, metadata)
            assert self.format.parse_group(path, documents) == metadata
            assert self.format.parse_array(path, documents) is None

    def test_documents_are_those_that_are_fetched(self, path):
        written = self.format.emit_array(path, self.arrays[0])
        assert set(written) <= set(self.format.array_keys(path))
        assert self.format.array_keys(path)[0] in written
        assert set(self.format.emit_group(path, GroupMetadata())) <= set(self.format.group_keys(path))

    def test_documents_are_standard_json(self, path):
        for metadata in self.arrays:
            for value in self.format.emit_array(path, metadata).values():
                json.loads(value.decode(), parse_constant=pytest.fail)

    def test_nothing_there_is_no_node(self, path):
        assert self.format.parse_array(path, {}) is None
        assert self.format.parse_array("elsewhere", self.format.emit_array(path, self.arrays[0])) is None

    def test_emitting_changes_nothing(self):
        for metadata in self.arrays:
            before = pickle.dumps(metadata)
            first = self.format.emit_array("a", metadata)
            assert self.format.emit_array("a", metadata) == first
            assert pickle.dumps(metadata) == before

    def test_a_broken_document_is_named(self, path, subtests):
        values = [b"", b"[]", b"null", b"{", b"\xff{}", b"[" * 100_000, b'{"a": ' * 100_000]
        key = self.format.array_keys(path)[0]
        for value in values:
            with subtests.test(value=value[:20]):
                with pytest.raises(MetadataError) as caught:
                    self.format.parse_array(path, {key: value})
                assert caught.value.key == key

    def test_what_cannot_be_held_is_refused(self, path):
        for metadata in self.refused:
            with pytest.raises(MetadataError):
                self.format.emit_array(path, metadata)

    def test_paths_are_normalised(self):
        assert self.format.normalize_path("//a///b.c/") == "a/b.c"
        assert self.format.normalize_path("/") == ""
        documents = self.format.group_documents
        for bad in ("..", "a/../b", "a/./b", "../a", "a/..", "a\0b", *documents, *(f"a/{each}" for each in documents)):
            with pytest.raises(MetadataError):
                self.format.normalize_path(bad)

    def test_children_lie_below_the_prefixes_that_are_listed(self, path):
        key = self.format.group_keys(f"{path}/kid" if path else "kid")[0]
        names = set()
        for prefix in self.format.list_prefixes(path):
            if key.startswith(prefix):
                head, slash, _ = key.removeprefix(prefix).partition("/")
                names.add(self.format.child_name(path, prefix, head + slash))
        assert "kid" in names

    def test_chunks_do_not_lie_outside_the_array(self, path):
        prefix = self.format.chunk_prefix(path)
        assert prefix == "" or prefix.endswith("/")
        assert path in prefix

    def test_the_format_is_a_value(self):
        assert pickle.loads(pickle.dumps(self.format)) == self.format
        assert hash(self.format) == hash(self.format)
        assert isinstance(self.format.name, str)
        assert self.format.configured({}) in (self.format, None)
