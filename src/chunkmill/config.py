"""Settings: the section ``chunkmill:`` of dask's config, read with dask or without it.

``chunkmill.yaml`` next to this file explains each setting. Where dask is imported, its config rules. Before, the same
YAML files and environment variables are read here, so that a program that only reads arrays does not import dask.
Options of a single store are its arguments instead.

Examples
--------
>>> import chunkmill, dask
>>> dask.config.get("chunkmill.progress")
'auto'
"""

from __future__ import annotations

import ast
import base64
import json
import os
import re
import site
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any


def registered(group: str, name: str) -> Any:
    """Return the entry point of a package under a name: a format, or what opens urls of a protocol; else ``None``.

    Examples
    --------
    >>> registered("formats", "none") is None
    True
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes 20 ms, and few names are of others

    return next(iter(entry_points(group=f"chunkmill.{group}", name=name)), None)


def setting(name: str, argument: Any = None) -> Any:
    """Return the value of a setting, or the `argument` that says it instead.

    Raises
    ------
    ValueError
        The value is not one that the setting takes.

    Examples
    --------
    >>> setting("fsync")
    False
    """
    value = look_up(name) if argument is None else argument
    fits, expected = _VALUES[name]
    if not fits(value):
        where = f"chunkmill.{name} is {value!r} in dask's config" if argument is None else f"{name}={value!r}"
        raise ValueError(f"{where}: expected {expected}")
    return value


_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "fsync": (lambda value: value in (True, False), "true or false"),
    "guess-zarr": (lambda value: value in (True, False, "auto"), "auto, true or false"),
    "progress": (lambda value: value in (True, False, "auto"), "auto, true or false"),
    "remote-requests": (lambda value: str(value).isdecimal() and int(value) > 0, "a whole number above 0"),
    "struct-name": (lambda value: value in ("keep", "struct", "structured"), "keep, struct or structured"),
    "retry-seconds": (lambda value: type(value) in (int, float) and value >= 0, "seconds, or 0 for no retries"),
}


def look_up(name: str) -> Any:
    """Return the value of a setting as it is given, or its default.

    Defaults may be missing in dask's config: a ``with dask.config.set({"chunkmill.temp": …})`` that was entered before
    chunkmill was used removes the whole section at its end.
    """
    default = DEFAULTS["chunkmill"][name]
    dask_config = getattr(sys.modules.get("dask"), "config", None)  # absent while dask is being imported
    if dask_config is not None:
        return dask_config.get(f"chunkmill.{name}", default)
    return read_settings().get(name, default)


# --------------------------------------------------------------------------------------------------------------------
# Without dask


@cache
def read_settings() -> dict[str, Any]:
    """Return the settings of files and environment variables, as dask reads them; the later ones win."""
    sections = [config.get("chunkmill") for config in (*_configs_of_files(), _config_of_environment())]
    return {name.replace("_", "-"): v for s in sections if isinstance(s, Mapping) for name, v in s.items()}


def _configs_of_files() -> Iterator[Mapping[str, Any]]:
    """Yield the contents of dask's YAML and JSON files, those that take precedence last."""
    folders = [Path(os.environ.get("DASK_ROOT_CONFIG", "/etc/dask"))]
    folders += [Path(prefix, "etc", "dask") for prefix in (sys.prefix, *site.PREFIXES)]
    folders.append(Path("~/.config/dask").expanduser())
    if "DASK_CONFIG" in os.environ:
        folders.append(Path(os.environ["DASK_CONFIG"]))
    for folder in reversed(
        dict.fromkeys(reversed(folders))
    ):  # a folder that is named twice takes precedence as the last
        try:
            paths = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in {".json", ".yaml", ".yml"}]
        except NotADirectoryError:
            paths = [folder]
        except OSError:
            continue
        for path in paths:
            config = _config_of_file(path)
            if isinstance(config, Mapping):
                yield config


def _config_of_file(path: Path) -> Any:
    try:
        text = path.read_text()
    except OSError:
        return None
    import yaml  # noqa: PLC0415 - takes 20 ms, and few have such files

    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"A dask config file at {str(path)!r} is malformed: {error}") from None
    if config is not None and not isinstance(config, dict):
        raise ValueError(f"A dask config file at {str(path)!r} is malformed: it is not a mapping")
    return config


def _config_of_environment() -> Mapping[str, Any]:
    """Return what environment variables set: ``DASK_CHUNKMILL__MAX_MEM=1GiB`` is ``chunkmill: {max-mem: 1GiB}``."""
    inherited = os.environ.get("DASK_INTERNAL_INHERIT_CONFIG")
    variables: dict[str, Any] = json.loads(base64.urlsafe_b64decode(inherited)) if inherited else {}
    for name, value in os.environ.items():
        if name.startswith("DASK_"):
            variables[name[5:].lower().replace("__", ".")] = _interpreted(value)
    config: dict[str, Any] = {}
    for name, value in variables.items():
        _assign(config, name.split("."), value)
    return config


def _assign(config: dict[str, Any], names: Sequence[str], value: Any) -> None:
    *above, last = names
    for name in above:
        if not isinstance(config.get(name), dict):
            config[name] = {}
        config = config[name]
    config[last] = value


def _interpreted(text: str) -> Any:
    """Return the value that dask reads in the text of an environment variable."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return {"none": None, "null": None, "false": False, "true": True}.get(text.lower(), text)


_DEFAULT = re.compile(r"^  ([\w-]+): (.+)$", re.MULTILINE)
_DEFAULTS_FILE = Path(__file__).with_name("chunkmill.yaml")

DEFAULTS: dict[str, dict[str, Any]] = {
    "chunkmill": {name: _interpreted(text) for name, text in _DEFAULT.findall(_DEFAULTS_FILE.read_text("utf-8"))}
}
"""The settings of ``chunkmill.yaml``."""


# --------------------------------------------------------------------------------------------------------------------
# When dask is imported


def when_imported(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call a function with a module now, or when it is imported: importing it for this would take too long."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        then(module)
    elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder:
    """Finds a module as others do, and calls a function with it once it has been imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name = name
        self._then = then

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - of the interface
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the module's own specification, whose loader calls the function afterwards."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = loader = copy(spec.loader)  # one may be of many modules, as those of zip files are
            execute = loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                self._then(module)

            loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec


def _give_defaults(dask: ModuleType) -> None:
    dask.config.update_defaults(DEFAULTS)  # values from files, the environment and the program come before them


when_imported("dask", _give_defaults)
