"""References over every golden store read the same through the set, or say why there can be none."""

import dask
import pytest
from interop.corpus import BY_FORMAT, BY_NAME, distinct

import chunkmill as cm
from chunkmill.errors import NodeNotFound, StoreError, UnsupportedFeature
from chunkmill.references.write import to_references

# What no set can say, and in which words that is refused.
REFUSED = {"lz4": "lz4 compression", "zip-deflated": "the member is compressed"}


def test_there_are_goldens():
    assert len(BY_NAME) > 500


def nodes(golden):
    """The root, or where no group is above them the arrays themselves."""
    try:
        return [golden.open("")]
    except NodeNotFound:
        return [golden.open(path) for path in golden.case.arrays]


@pytest.mark.filterwarnings("ignore:.*is unknown here and read as:UserWarning")  # the draft's fallbacks
@pytest.mark.filterwarnings("ignore:.*has no endian:UserWarning")  # zarr-python 3.0 and 3.1
@pytest.mark.filterwarnings("ignore:a dimension name occurs twice:UserWarning")
@pytest.mark.parametrize("names", BY_FORMAT.values(), ids=BY_FORMAT)
def test_values(names, tmp_path, subtests):
    for i, golden in enumerate(each for name in names for each in distinct(BY_NAME[name])):
        with subtests.test(golden.id):
            check_values(golden, tmp_path / f"{i}")


def check_values(golden, folder):
    refused = [text for name, text in REFUSED.items() if name in golden.id]
    for i, node in enumerate(nodes(golden)):
        target = folder / f"refs-{i}.json"
        with dask.config.set(scheduler="sync"):
            try:
                to_references(node, target)
            except (StoreError, UnsupportedFeature) as error:
                if not any(text in str(error) for text in refused):
                    raise
                continue
            report = cm.verify(node, target)
        assert report.equal or not golden.arrays, report
