"""Extension of Griffe: the type of each parameter of the reference, also where a docstring describes several at once.

Griffe gives all of them that of the first. ``Any`` says nothing that the description does not: it is left out.
"""

from __future__ import annotations

from typing import Any

import griffe

SECTIONS = ("Parameters", "Returns", "Raises", "Examples")  # of what is public


class OwnTypes(griffe.Extension):
    """Give each parameter of a docstring its own annotation."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Look parameters up in the function, or in the one that plans the same."""
        text = func.docstring.value if func.docstring else ""
        if not all(f"{section}\n---" in text for section in SECTIONS):
            return
        planner = func.parent and func.parent.members.get(f"plan_{func.name}")
        for section in func.docstring.parsed:
            if section.kind is not griffe.DocstringSectionKind.parameters:
                continue
            for parameter in section.value:
                name = parameter.name.lstrip("*")
                for known in (func, planner):
                    if (
                        isinstance(known, griffe.Function)
                        and name in known.parameters
                    ):
                        parameter.annotation = known.parameters[name].annotation
                        break
                if str(parameter.annotation) == "Any":
                    parameter.annotation = None
