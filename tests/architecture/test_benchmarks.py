"""The benchmarks' modules import each other in one direction, inside functions too."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"
MODULES = {path.stem: ast.parse(path.read_text()) for path in FOLDER.glob("*.py")}


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "benchmarks":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmarks."):
            yield node.module.removeprefix("benchmarks.")
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("benchmarks.") for a in node.names if a.name.startswith("benchmarks."))


def test_benchmarks_import_each_other_without_a_circle():
    arrows = {name: set(imported(tree)) & MODULES.keys() for name, tree in MODULES.items()}
    assert arrows["__main__"] == {"run"}
    order = list(TopologicalSorter(arrows).static_order())  # raises CycleError
    assert order.index("harness") < order.index("report") < order.index("run") < order.index("__main__")
