"""What the command line says of a node: facts for programs, and the same for people.

Not here: commands (`chunkmill.cli`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import batched
from math import isfinite, prod
from typing import Any

import numpy as np
from dask.utils import format_bytes

from chunkmill import hierarchy
from chunkmill.array import Array
from chunkmill.hierarchy import Node
from chunkmill.repr import codecs_text
from chunkmill.repr_report import report_text

__all__ = ["describe", "facts_text", "listing", "plain", "stored"]

_MAX_CHILDREN = 50  # named by `info`
_CONCURRENT = 16  # sizes asked for at once
_BATCH = 1 << 14  # chunks looked up at once
