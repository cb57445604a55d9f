"""Settings: the section ``chunkmill:`` of dask's config, and its defaults.

``chunkmill.yaml`` beside this file explains each setting; it is loaded when a name of chunkmill is first used,
or at once where dask is imported already.

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

__all__ = ["DEFAULTS", "look_up"]

DEFAULTS: dict[str, Any] = yaml.safe_load(files("chunkmill").joinpath("chunkmill.yaml").read_text("utf-8"))

dask.config.update_defaults(DEFAULTS)  # values from files, the environment and the program come before them


def look_up(name: str) -> Any:
    """Return the value of a setting in dask's config, or its default.

    Defaults may be missing there: a ``with dask.config.set({"chunkmill.temp": …})`` that was entered before chunkmill
    was used removes the whole section at its end.
    """
    return dask.config.get(f"chunkmill.{name}", DEFAULTS["chunkmill"][name])


look_up_in(look_up)
