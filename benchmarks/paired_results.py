"""Times of the same benchmarks with two versions, row by row: compared, and saved (`benchmarks.paired`)."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Self

from benchmarks import harness, report
from benchmarks.harness import RESULTS, duration

__all__ = ["CHANCE", "SLIGHT", "Compared", "Part", "save", "saved", "sign_test", "table"]

SLIGHT, CHANCE = 0.05, 0.05


@dataclass(frozen=True)
class Compared:
    """A row that was measured with both versions; `cpu` is the median ratio of their CPU seconds, where it is known."""

    benchmark: str
    case: str
    contender: str
    before: list[float]
    now: list[float]
    cpu: float | None = None

    @classmethod
    def of(cls, benchmark: str, case: str, contender: str, before: Sequence[float], now: Sequence[float]) -> Self:
        n = min(len(before), len(now))
        before, now = [*before[:n]], [*now[:n]]
        pairs = [[getattr(seconds, "cpu", 0) for seconds in pair] for pair in zip(now, before, strict=True)]
        cpu = statistics.median([a / b for a, b in pairs]) if all(map(all, pairs)) else None
        return cls(benchmark, case, contender, before, now, cpu)

    @property
    def ratios(self) -> list[float]:
        return harness.paired(self.now, self.before)

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def verdict(self) -> str:
        if abs(self.ratio - 1) <= SLIGHT or sign_test(self.ratios) >= CHANCE:
            return ""
        return "slower" if self.ratio > 1 else "faster"


@dataclass(frozen=True)
class Part:
    """Rows of one benchmark that was run with both versions, and what was not compared, with the reasons."""

    date: str
    command: str
    rows: list[Compared]
    not_compared: list[str]


def sign_test(ratios: Sequence[float]) -> float:
    """Return how probable it is that as many rounds, or more, are on one side of 1 where nothing differs."""
    n = sum(ratio != 1 for ratio in ratios)
    most = max(sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios))
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(most, n + 1)) / 2**n)


def table(rows: Sequence[Compared], failed: Sequence[str] = ()) -> str:
    """Return the rows as one Markdown table, the slower ones first, after the geometric means of each benchmark."""
    lines = []
    for name in dict.fromkeys(row.benchmark for row in rows):
        own = [row for row in rows if row.benchmark == name]
        mean = statistics.geometric_mean(row.ratio for row in own)
        marked = [sum(row.verdict == verdict for row in own) for verdict in ("slower", "faster")]
        lines.append(f"- {name}: {mean:.2f} of the time, {len(own)} rows, {marked[0]} slower, {marked[1]} faster")
    lines += ["", *(f"- not compared: {each}" for each in failed), ""]
    lines += [
        "| | benchmark | case | contender | before | now | ratio | quartiles | rounds | p | CPU |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in sorted(rows, key=lambda row: -row.ratio if row.verdict == "slower" else 0):
        low, high = report.quartiles(row.ratios)
        before, now = (duration(statistics.median(times)) for times in (row.before, row.now))
        cpu = "" if row.cpu is None else f"{row.cpu:.2f}"
        cells = (row.verdict, row.benchmark, row.case, row.contender, before, now, f"{row.ratio:.2f}")
        rounds = (f"{low:.2f} to {high:.2f}", str(len(row.ratios)), f"{sign_test(row.ratios):.3f}", cpu)
        lines.append("| " + " | ".join([*cells, *rounds]) + " |")
    return "\n".join([*lines, ""])


def save(parts: Mapping[str, Part], about: dict[str, str]) -> None:
    """Write the results of the benchmarks that were run, by their names."""
    document = {"about": about, "parts": {name: asdict(part) for name, part in parts.items()}}
    (RESULTS / "paired.json").write_text(json.dumps(document, indent=1) + "\n")
    lines = [f"- {key}: {value}" for key, value in about.items()]
    lines += [f"- {name}: {part.date}, {part.command}" for name, part in parts.items()]
    rows = [row for part in parts.values() for row in part.rows]
    failed = [f"{name}: {each}" for name, part in parts.items() for each in part.not_compared]
    (RESULTS / "paired.md").write_text("\n".join(["# paired", "", *lines, "", table(rows, failed)]))


def saved(about: dict[str, str]) -> dict[str, Part]:
    """Return the results that were saved of the same two versions."""
    try:
        document = json.loads((RESULTS / "paired.json").read_text())
        if any(document["about"][each] != about[each] for each in ("base", "sources")):
            return {}
    except (OSError, ValueError, KeyError):
        return {}
    return {
        name: Part(**(part | {"rows": [Compared(**row) for row in part["rows"]]}))
        for name, part in document["parts"].items()
    }
