"""Chunks that a chain of codecs is built for, and what such chains refuse: for the tests of codecs."""

import numpy as np
import pytest
from contracts.codec_contract import pipeline_of, spec_of

from chunkmill.codecs.base import ChunkSpec
from chunkmill.errors import CodecError, MetadataError


def chunks_of(dtype, *shape, fill_value=None):
    """Return the spec of chunks of a dtype and shape."""
    return ChunkSpec(shape, np.dtype(dtype), fill_value)


def not_built(chain, spec, reason, error=MetadataError):
    """Check that there is no such pipeline."""
    with pytest.raises(error, match=reason):
        pipeline_of(chain, spec)


def not_decoded(chain, data, spec, reason=None):
    """Check that a pipeline refuses stored bytes."""
    pipeline = pipeline_of(chain, spec)
    with pytest.raises(CodecError, match=reason):
        pipeline.decode(data, spec)


def not_encoded(chain, values, reason, **fill_value):
    """Check that a pipeline refuses values."""
    spec = spec_of(values, **fill_value)
    pipeline = pipeline_of(chain, spec)
    with pytest.raises(CodecError, match=reason):
        pipeline.encode(values, spec)
