"""Settings: the section ``chunkmill:`` of dask's config, and its defaults.

What can be set, and how, is said in ``chunkmill.yaml`` beside this file; it is loaded when chunkmill is imported.

Examples
--------
>>> import chunkmill, dask
>>> dask.config.get("chunkmill.progress")
'auto'
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import dask
import yaml

from chunkmill.stores.settings import look_up_in

__all__ = ["DEFAULTS"]

DEFAULTS: dict[str, Any] = yaml.safe_load(files("chunkmill").joinpath("chunkmill.yaml").read_text("utf-8"))

dask.config.update_defaults(DEFAULTS)  # below what files, the environment and the program have set
look_up_in(lambda name: dask.config.get(f"chunkmill.{name}"))
