"""Run benchmarks by name, print their results, and write ``benchmarks/results/``."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import warnings
from pathlib import Path

from benchmarks import harness, report


def known() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def run_modules(names: list[str], *, quick: bool = False, cluster: bool = False) -> int:
    """Run benchmarks by name, print and save their results; return how many targets were missed."""
    n_missed = 0
    for name in names:
        module = importlib.import_module(f"benchmarks.bench_{name}")
        start = time.perf_counter()
        results = module.run(quick=quick, cluster=cluster)
        flags = " --quick" * quick + " --cluster" * cluster
        print(report.table(results))
        print(f"{name}: {time.perf_counter() - start:.0f} s\n", flush=True)
        if not harness.ONLY:
            command = f"python -m benchmarks{flags} {name}"
            report.save(name + "-quick" * quick, results, command, getattr(module, "plot", None))
        n_missed += sum(row.met is False for row in results)
    return n_missed


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(known())}")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--cluster", action="store_true", help="on a LocalCluster, too")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases to run; their results are not saved")
    arguments = parser.parse_args(argv)
    harness.ONLY = arguments.only
    if unknown := set(arguments.names) - set(known()):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(known())}")
    warnings.filterwarnings("ignore", module="zarr")
    n_missed = run_modules(arguments.names or known(), quick=arguments.quick, cluster=arguments.cluster)
    if n_missed:
        print(f"{n_missed} targets missed")
    return 0


def alone(module: str) -> None:
    """Run the benchmark of one module with the command line's options: ``python -m benchmarks.bench_read``."""
    sys.exit(main([*sys.argv[1:], module.removeprefix("benchmarks.bench_")]))
