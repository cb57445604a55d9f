"""Put the contract tests into the wheel, as `chunkmill.testing`; an editable install has them in ``tests/contracts``.

Listed in ``pyproject.toml`` it would be copied for editable installs, too, as a second package of the same name.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ContractsInWheel(BuildHookInterface):
    """Put the contracts of codecs, formats and stores into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them to a wheel that is not of an editable install."""
        for kind in ("codec", "format", "store") if version == "standard" else ():
            build_data["force_include"][f"tests/contracts/{kind}_contract.py"] = f"chunkmill/testing/{kind}s.py"
