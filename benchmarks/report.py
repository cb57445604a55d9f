"""Show results as a table and a plot, and save them with the machine, the versions and the command.

Not here: the table of figures of the documentation (`benchmarks.summary`).
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.harness import BARE, RESULTS, Row, duration

PACKAGES = ("numpy", "dask", "distributed", "numcodecs", "isal", "zarr", "tensorstore", "z5py", "fsspec", "s3fs")


def machine() -> dict[str, str]:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next(
            (line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line), cpu
        )
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cpu": f"{cpu}, {os.cpu_count()} cores",
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "commit": _commit(),
    }


def _commit() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False, cwd=RESULTS.parent
    )
    return found.stdout.strip() or "unknown"


def table(results: list[Row]) -> str:
    """Return the rows as one Markdown table a benchmark."""
    lines: list[str] = []
    for name in dict.fromkeys(row.benchmark for row in results):
        lines += [
            f"### {name}",
            "",
            "| case | contender | median | quartiles | x bare loop | x best peer | target | counts |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for row in results:
            if row.benchmark == name:
                low, high = quartiles(row.times)
                target = f"{row.target}: {'met' if row.met else 'MISSED'}" if row.target else ""
                counts = ", ".join(f"{key} {_number(value)}" for key, value in row.counts.items())
                cells = (
                    row.case,
                    row.contender,
                    duration(row.seconds),
                    f"{duration(low)} to {duration(high)}",
                    "" if row.ratio is None else f"{row.ratio:.2f}",
                    "" if row.to_best_peer is None else f"{row.to_best_peer:.2f}",
                    target,
                    counts,
                )
                lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def quartiles(times: list[float]) -> tuple[float, float]:
    if len(times) < 2:
        return times[0], times[0]
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, high


def _number(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 2**20:.4g} MiB" if value >= 2**20 else f"{value:.4g}"
    return f"{value:.4g}"


def save(
    name: str, results: list[Row], command: str, draw: Callable[[Path, str, list[Row]], None] | None = None
) -> None:
    """Write ``results/<name>.json``, ``.md`` and ``.png``, drawn by `draw` where a benchmark has its own drawing."""
    RESULTS.mkdir(exist_ok=True)
    about = machine() | {"command": command}
    document = {"about": about, "rows": [asdict(row) for row in results]}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    head = "\n".join(f"- {key}: {value}" for key, value in about.items())
    (RESULTS / f"{name}.md").write_text(f"# {name}\n\n{head}\n\n{table(results)}")
    (draw or plot)(RESULTS / f"{name}.png", name, results)


def plot(path: Path, title: str, results: list[Row]) -> None:
    """Draw a dot for each contender of each case, in multiples of the bare loop (of the fastest, without one)."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("no plot: pip install matplotlib")
        return
    mpl.use("agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(row.benchmark for row in results))
    contenders = list(dict.fromkeys(row.contender for row in results))
    n_cases = max(len({row.case for row in results if row.benchmark == name}) for name in names)
    size = (6.5 * len(names), 2.2 + 0.38 * n_cases)
    fig, axes = plt.subplots(1, len(names), figsize=size, squeeze=False, layout="constrained")
    for name, ax in zip(names, axes[0], strict=True):
        cases = list(dict.fromkeys(row.case for row in results if row.benchmark == name))
        for row in (row for row in results if row.benchmark == name):
            own = [other for other in results if (other.benchmark, other.case) == (name, row.case)]
            baseline = next((r.seconds for r in own if r.contender == BARE), min(r.seconds for r in own))
            low, high = quartiles(row.times)
            number = contenders.index(row.contender)
            ax.errorbar(
                row.seconds / baseline,
                cases.index(row.case) + (number - len(contenders) / 2) * 0.07,
                xerr=[[(row.seconds - low) / baseline], [(high - row.seconds) / baseline]],
                fmt="D" if "chunkmill" in row.contender else "|" if row.contender == BARE else "o",
                color="k" if row.contender == BARE else f"C{number % 10}",
                ms=5,
                lw=1,
                label=row.contender,
            )
        ax.axvline(1, color="0.6", lw=0.8, zorder=0)
        ax.set_xscale("log")
        ax.set_yticks(range(len(cases)), cases, fontsize=8)
        ax.invert_yaxis()
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("time, in multiples of the bare loop (of the fastest); medians and quartiles", fontsize=8)
    handles = {label: h for ax in axes[0] for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    fig.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, fontsize=8, title=title)
    fig.savefig(path, dpi=110)
    plt.close(fig)
