"""List the lines of functions of the package that no test enters: ``python tests/support/entered.py tests/unit/journal``.

Arguments are those of pytest, which runs in this process alone: what workers and other processes enter is not seen. With
``--hits FILE`` runs add up, so that a few folders at a time suffice; ``--report`` lists without a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "chunkmill"
CALLS = 500  # of a function: what it enters only later is missed, and tests take twice their time, not ten times


class Tracer:
    """Trace functions of the package, each until all of its lines were entered, in at most `CALLS`."""

    def __init__(self, entered: dict[str, set[int]]) -> None:
        self.entered = entered
        self._left: dict[int, tuple[CodeType, set[int]]] = {}  # by id: the hash of code is that of its text
        self._calls: Counter[int] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if (known := self._left.get(id(code))) is None:
            name = code.co_filename
            ours = name.startswith(str(PACKAGE))
            known = self._left[id(code)] = (
                code,
                lines_of(code) - self.entered.setdefault(name, set()) if ours else set(),
            )
        left = known[1]
        if not left:
            return None
        self._calls[id(code)] += 1
        if self._calls[id(code)] > CALLS:
            left.clear()
            return None
        seen = self.entered[code.co_filename]

        def line(frame: FrameType, event: str, _: Any) -> Any:
            seen.add(frame.f_lineno)
            left.discard(frame.f_lineno)
            return line if left else None

        return line(frame, event, None)


def lines_of(code: CodeType) -> set[int]:
    return {line for *_, line in code.co_lines() if line}


def functions(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Yield functions in the code of a module, with lambdas and comprehensions as parts of them."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & 0x2:  # has locals of its own: a class has none
                yield each.co_qualname, each
            yield from functions(each)


def missing(entered: dict[str, set[int]]) -> Iterator[str]:
    """Yield a line for each function that is not entered wholly: its place, name and lines."""
    for path in sorted(PACKAGE.rglob("*.py")):
        seen = entered.get(str(path), set())
        for name, code in functions(compile(path.read_text("utf-8"), str(path), "exec")):
            own = lines_of(code) - {code.co_firstlineno}
            if left := sorted(own - seen):
                how = "never entered" if len(left) == len(own) else f"lines {', '.join(map(str, left))}"
                yield f"{path.relative_to(PACKAGE)}:{code.co_firstlineno} {name}: {how}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hits", type=Path, help="a file of what earlier runs have entered, which this one adds to")
    parser.add_argument("--report", action="store_true", help="run nothing")
    options, tests = parser.parse_known_args()
    entered: dict[str, set[int]] = {}
    if options.hits and options.hits.exists():
        entered = {str(PACKAGE / path): set(lines) for path, lines in json.loads(options.hits.read_text()).items()}
    if not options.report:
        tracer = Tracer(entered)
        threading.settrace(tracer)
        sys.settrace(tracer)
        code = pytest.main(["-q", *tests])
        sys.settrace(None)
        if options.hits:
            ours = {Path(path).relative_to(PACKAGE): lines for path, lines in entered.items() if lines}
            options.hits.write_text(json.dumps({path.as_posix(): sorted(lines) for path, lines in ours.items()}))
        if code:
            return int(code)
    print(*missing(entered), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
