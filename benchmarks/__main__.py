"""``python -m benchmarks [--quick] [--cluster] [--only REGEX] [names…]``: run, and write ``benchmarks/results/``.

Names are those of the modules without ``bench_``; all, when none is given. ``--quick``: small sizes and few rounds, to
see that all works. ``--cluster``: on a LocalCluster of two processes, too.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType

from benchmarks import harness


def known() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def run_modules(names: list[str], *, quick: bool = False, cluster: bool = False) -> int:
    """Run benchmarks by name, print and save their results; return how many targets were missed."""
    n_missed = 0
    for name in names:
        module = importlib.import_module(f"benchmarks.bench_{name}")
        if not hasattr(module, "run"):
            if not quick:
                run_script(name, module)
            continue
        start = time.perf_counter()
        results = module.run(quick=quick, cluster=cluster)
        flags = " --quick" * quick + " --cluster" * cluster
        print(harness.table(results))
        print(f"{name}: {time.perf_counter() - start:.0f} s\n", flush=True)
        if not harness.ONLY:
            harness.save(name + "-quick" * quick, results, f"python -m benchmarks{flags} {name}")
        n_missed += sum(row.met is False for row in results)
    return n_missed


def run_script(name: str, module: ModuleType) -> None:
    """Run a benchmark that has a `main` of its own, in a process of its own; keep what it prints."""
    command = [sys.executable, str(module.__file__)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parent.parent)
    print(done.stdout, flush=True)
    head = "".join(f"{key}: {value}\n" for key, value in harness.machine().items())
    harness.RESULTS.mkdir(exist_ok=True)
    (harness.RESULTS / f"{name}.txt").write_text(f"{head}command: python benchmarks/bench_{name}.py\n\n{done.stdout}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
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


if __name__ == "__main__":
    sys.exit(main())
