"""An image to make pyramids of."""

import pytest
from support.images import DIMS, VALUES

import chunkmill as cm


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Where the image is stored, which no test changes."""
    url = tmp_path_factory.mktemp("source") / "a.zarr"
    cm.to_store(VALUES, url, "a", chunks=(1, 12, 10, 12), dimension_names=DIMS)
    return url, "a"
