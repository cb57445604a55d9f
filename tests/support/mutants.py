"""Change one thing in the package, and see whether a test fails: how sharp the unit and contract tests are.

    python tests/support/mutants.py --seed 1 --number 400 [--room nodes]

Each mutant is one change of one expression (a comparison, a constant, a condition, a result, an error that is not
raised, two arguments exchanged). The tests run once under coverage, which tells those that enter each line. Then a child
is forked for each mutant, changes the function in its memory, and runs the tests that enter the line, quick ones of its
room first, for `SECONDS`; it is killed where one fails. A survivor is equivalent, or shows a test that is missing: a
reader decides which, and names the first in `HARMLESS`.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import linecache
import os
import pkgutil
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "chunkmill"
SECONDS = 30  # of the processor, for tests, as they took without a change
TESTS = ["tests/unit", "tests/deaths", "tests/contracts", "tests/properties", "tests/conformance/test_golden_stores.py"]
TESTS += ["src", "tests/interop/test_other_writers.py", "-m", "not slow", "-k", "not (S3 or Http or Azure or Gcs)"]
_NOT_APPLIED = 77  # as an exit code

HARMLESS = {
    ("__init__.py", "import_module('chunkmill.array.threads').use_locks(factory)"): "it is looked up again",
    ("array/layout.py", "len(_PIPELINES) >= _MAX_PIPELINES"): "a cache holds one more",
    ("array/staleness.py", "array.check_codecs()"): "layouts are built with the first chunk then",
    ("checks/check.py", "suppress(JobError, DatasetError)"): "the same in either order",
    ("array/scattered.py", "sum((isinstance(part, np.ndarray) for part in parts)) <= 1"): "`np.ix_` of one is alike",
    ("checks/inventory.py", "same_json(one, other)"): "the same in either order",
    ("checks/inventory.py", "(end := key.rfind('/', 0, end)) >= 0"): "no key begins with a slash",
    ("checks/verify.py", "read, owned = read_side(other, worker), Side(grid, grid, 0)"): "a byte of memory more",
    ("checks/verify.py", "differing(a, b)"): "the same in either order",
    ("checks/verify.py", "max_mem = 2 * max_mem + 1  # chunks that exceed the limit are compared nevertheless"): (
        "the limit grows either way"
    ),
    ("checks/verify.py", "prod(keys.chunk_shape) * array.dtype.itemsize <= _MAX_BLOCK_BYTES"): "a size of blocks",
    ("codecs/cast_value.py", "rounded > known.greatest"): "no number that is beyond is equal to it",
    ("codecs/cast_value.py", "values.dtype.kind in 'iuf' and (not is_small(values.dtype))"): "all are cast the same",
    ("codecs/cast_value.py", "one = ChunkSpec((1,), spec.dtype, None)"): "of this spec the dtype alone is used",
    ("codecs/numcodecs.py", "flat = np.ascontiguousarray(chunk).reshape(-1)"): "any negative length is taken so",
    ("codecs/sharding.py", "np.minimum(offsets, limit)"): "the same in either order",
    ("codecs/pipeline.py", "out is not None"): "the values are copied once more",
    ("conversion/actions.py", "_same_sharding(old.sharding, new.sharding)"): "the same in either order",
    ("conversion/coarsen.py", "gcd(a.length, b.length)"): "the same in either order",
    ("conversion/target_metadata.py", "'vlen-bytes' in serializers"): "formats of objects hold their fill values",
    (
        "conversion/stages.py",
        "return count_touched(listed[0], source, target) <= _MOST_READS * len(listed[0])",
    ): "the values are the same in either way",
    (
        "conversion/stages.py",
        "return None if None in digests else sum(each for each in digests if each is not None) % 2**64",
    ): "a fingerprint modulo another number",
    ("dask_arrays/as_dask.py", "raise masked()"): "masked blocks are refused when they are computed, too",
    ("dask_arrays/blocks.py", "return ()"): "compared with chunks alone, and equal to none of an array with axes",
    ("dask_arrays/blocks.py", "runs[1][0] < runs[0][0]"): "runs next to each other have different lengths",
    ("dask_arrays/blocks.py", "pickle.dumps(function, pickle.HIGHEST_PROTOCOL)"): "cloudpickle does it then",
    ("conversion/estimate.py", "gcd(n, chunk)"): "the same in either order",
    ("pyramids/levels.py", "log2(edge / length) >= 0.5"): "no quotient is the root of 2",
    ("runtime/cluster_tasks.py", "time.sleep(_SLEEP)"): "it asks more often",
    ("dask_arrays/write.py", "len(todo) > _SUMMED_AT_ONCE"): "one task more sums the counts",
    ("dask_arrays/expressions.py", "(part.step or 1) > 0"): "no step is 0",
    ("dask_arrays/hazards.py", "return len(data)"): "pickle ignores what `write` returns",
    ("dask_arrays/hazards.py", "search.found.clear()"): "the same place is told twice",
    ("dask_arrays/hazards.py", "seen.add(key)"): "a task is looked at twice, with the same result",
    (
        "dask_arrays/resumable_write.py",
        "counts = WriteCounts(*(result.counts.get(each, 0) for each in WriteCounts._fields))",
    ): "every write counts all of them",
    ("dask_arrays/regroup.py", "used <= x.dask.layers.keys()"): "all of them, where the two are equal, either way",
    ("formats/consolidated.py", "if known is not None and known.get(key, _NOTHING)[0] == value:"): "it is parsed again",
    ("formats/references/parquet.py", "{'offset', 'size'} <= set(names)"): "'path' is among the names, too",
    (
        "formats/references/parquet.py",
        "numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)",
    ): "without nulls nothing is copied",
    ("formats/zarr_v3.py", "warnings.warn(text, UserWarning, stacklevel=2)"): "no line of the user's either way",
    ("jobs/sources.py", "not is_there and each.store.uncached is not each.store"): "consolidated metadata know them",
    ("journal/records.py", "n_threads = REQUESTS_AT_ONCE if store.is_remote else 1"): "the sum is the same",
    ("jobs/work.py", "return ''"): "it is asked for as true or false",
    ("journal/heartbeat.py", "abs(age) < LIVE_SECONDS"): "no age is equal to it",
    ("model/metadata.py", "same_json(a[key], b[key])"): "the same in either order",
    ("model/metadata.py", "value > 0"): "an infinity is not 0",
    (
        "model/reference_builder.py",
        'return np.fromstring(text.replace(form[1], " "), dtype=np.int64, sep=" ").reshape(-1, form[2])',
    ): "any negative length is taken so",
    ("nodes/changes.py", "hasattr(values, 'shape') and (not isinstance(values, (np.ndarray, np.generic)))"): (
        "block by block the values are the same"
    ),
    ("nodes/array.py", "'dask.array' in sys.modules"): "`da.from_array` asks for the token, which does it, too",
    ("nodes/opening.py", "each.configured({}) is not None"): "documents are asked for ahead, or when they are needed",
    ("nodes/opening.py", "may_have(each, path) and each.configured({}) is not None"): "as before",
    ("nodes/reference_sets.py", 'is_named = url in BARE_URLS or ".json" in url.rsplit("/", 1)[-1]'): "it is alike",
    ("nodes/target.py", "len(self.arrays) > 1"): "of one array, nothing is found again",
    (
        "references/write.py",
        "ids, starts = np.full(len(used), -1), np.zeros(len(used), np.int64)",
    ): "any below 0 is none",
    ("references/locate.py", "numbers, chunks, offsets, lengths = np.array(columns, np.int64).reshape(-1, 4).T"): (
        "any negative length is taken so"
    ),
    ("runtime/cluster_tasks.py", "self._client.cancel(list(self._running), force=True)"): "no other client wants them",
    ("runtime/preflight.py", "_process.fit.add(hash(needs))"): "it is checked again",
    ("runtime/scheduler.py", "len(self._packed) > _MOST_IN_TASK"): "one task more is packed with others",
    ("scans/kerchunk.py", "head = file.read(8)"): "one byte more is read",
    ("stores/directories.py", "exchange_names(staged, path)"): "the same in either order",
    ("stores/local.py", "os.path.relpath(path, self._root).replace(os.sep, '/')"): "on POSIX both are slashes",
    ("stores/posix_file.py", "IsADirectoryError(error.errno, error.strerror)"): "it is caught, and neither is read",
    ("stores/obstore_clients.py", "_reached.add(token)"): "it is asked again",
    ("transforms/blocks.py", "unit.n_chunks <= 2 * multiple"): "where they are equal, both sets are the same",
    ("transforms/blocks.py", "amplification < read * _WORTH"): "no product of fractions is equal to it",
    (
        "xarray/new_variable.py",
        "plain = Variable(variable.dims, variable._data, variable.attrs, encoding, fastpath=True)  # noqa: SLF001",
    ): "xarray checks it again",
}
"""Why a survivor changes nothing, by module and text, of a constant that of its line."""

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change of a module."""

    path: Path
    kind: str
    node: ast.expr | ast.stmt
    changed: ast.expr | ast.stmt

    @property
    def texts(self) -> tuple[str, str]:
        """Return what is changed, and what it becomes."""
        return ast.unparse(self.node), ast.unparse(self.changed)

    @property
    def place(self) -> tuple[str, str]:
        """Return its module, and what is changed as `HARMLESS` names it."""
        is_line = self.kind in {"constant", "boolean"}  # which tell nothing alone
        text = linecache.getline(str(self.path), self.node.lineno).strip() if is_line else self.texts[0]
        return self.path.relative_to(PACKAGE).as_posix(), text

    def source(self) -> str:
        """Return the module, changed, each line where it was."""
        node, data = self.node, self.path.read_bytes()
        starts = [0, *accumulate(len(line) for line in data.splitlines(keepends=True))]
        start = starts[node.lineno - 1] + node.col_offset
        stop = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        lines = "\n" * ((node.end_lineno or 0) - node.lineno)
        after = self.texts[1]
        replaced = f"{after}{lines}" if isinstance(node, ast.stmt) else f"({after}{lines})"
        return (data[:start] + replaced.encode() + data[stop:]).decode()


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module; docstrings and annotations stay."""
    for node, kind, changed in _changes(ast.parse(path.read_bytes())):
        yield Mutant(path, kind, node, changed)


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, ast.expr | ast.stmt]]:
    """Yield nodes, the kind of change, and what each becomes."""
    for node in _code(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITES:
            changed = deepcopy(node)
            changed.ops[0] = _OPPOSITES[type(node.ops[0])]()
            yield node, "comparison", changed
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, "boolean", ast.Constant(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield node, "constant", ast.Constant(node.value + 1)
        elif isinstance(node, ast.BoolOp):
            changed_operation = deepcopy(node)
            changed_operation.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, "and, or", changed_operation
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "not", node.operand
        elif isinstance(node, ast.Return) and node.value is not None and not _is_flag(node.value):
            yield node, "result", ast.Return(ast.Constant(None))
        elif isinstance(node, ast.Raise) and node.exc is not None:
            yield node, "raise", ast.Pass()
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node, "call", ast.Pass()
        elif (
            isinstance(node, ast.Call)
            and len(node.args) > 1
            and not any(isinstance(a, ast.Starred) for a in node.args)
            and ast.unparse(node.func) not in {"max", "min"}  # the same in any order
            and ast.dump(node.args[0]) != ast.dump(node.args[1])
        ):
            changed_call = deepcopy(node)
            changed_call.args[:2] = changed_call.args[1::-1]
            yield node, "arguments", changed_call


def _is_flag(node: ast.expr) -> bool:
    """Return whether it is None, or a constant that is changed as one."""
    return isinstance(node, ast.Constant) and node.value in {None, False, True}


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk what runs when functions are called: no annotations, decorators, docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in node.body:
                yield from _expressions(statement)


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg == "strict":  # of `zip`, whose error shows a mistake of ours
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "args"} and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_code = isinstance(child, ast.AST) and not isinstance(
                child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.JoinedStr)
            )
            if is_code and not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                yield from _expressions(child)


class Tests:
    """Which tests enter each line, and the seconds of each: a plugin of pytest that measures, and what it wrote."""

    def __init__(self, folder: Path) -> None:
        from coverage import Coverage

        self.coverage = Coverage(data_file=str(folder / "lines"), source=[str(PACKAGE)], config_file=False)
        self._times = folder / "times"
        self.seconds: dict[str, float] = json.loads(self._times.read_text()) if self._times.exists() else {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure one test."""
        self.coverage.switch_context(item.nodeid)
        started = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - started
        return result

    def pytest_sessionfinish(self) -> None:
        """Write what was measured."""
        self.coverage.stop()
        self.coverage.save()
        self._times.write_text(json.dumps(self.seconds))

    def entering(self, mutant: Mutant) -> list[str]:
        """Return tests that enter the statement of a mutant, those of its module and room first, for `SECONDS`."""
        by_line = self.coverage.get_data().contexts_by_lineno(str(mutant.path))
        found = {test for line in _statement(mutant) for test in by_line.get(line, ()) if test in self.seconds}
        room, module = f"unit/{mutant.path.relative_to(PACKAGE).parts[0]}/", f"test_{mutant.path.stem}.py"
        chosen: list[str] = []
        total = 0.0
        for test in sorted(found, key=lambda t: (module not in t, room not in t, self.seconds[t])):
            total += self.seconds[test]
            if total < SECONDS or not chosen:
                chosen.append(test)
        return chosen


def pytest_configure(config: pytest.Config) -> None:
    """Measure which tests enter which lines, where pytest has this module as its plugin."""
    tests = Tests(Path(os.environ["MUTANTS"]))
    tests.coverage.start()
    config.pluginmanager.register(tests)


def _statement(mutant: Mutant) -> range:
    """Return the lines of the innermost statement that has a mutant; of a compound one those before its body."""
    line = mutant.node.lineno
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(mutant.path.read_bytes())):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            lines = range(node.lineno, max(body[0].lineno, node.lineno + 1) if body else (node.end_lineno or 0) + 1)
            if line in lines:  # the innermost is walked last
                found = lines
    return found


def _applied(mutant: Mutant) -> bool:
    """Change the functions of a module in memory; False where variables that a function closes over would differ."""
    try:
        changed = _functions(compile(mutant.source(), mutant.path, "exec"))
    except SyntaxError:  # inside of an f-string, for example
        return False
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == str(mutant.path):
            code = changed.get((each.__code__.co_qualname, each.__code__.co_firstlineno), each.__code__)
            if code.co_freevars != each.__code__.co_freevars:
                return False
            each.__code__ = code
    return True


def _functions(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """Return the code of all functions within another code, by name and line."""
    found: dict[tuple[str, int], CodeType] = {}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found |= {(each.co_qualname, each.co_firstlineno): each, **_functions(each)}
    return found


def run(mutant: Mutant, tests: list[str], folder: str) -> str:
    """Return ``killed``, ``survived``, ``not entered``, ``out of time``, or ``not applied``, by a child."""
    if not tests:
        return "not entered"
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (4 * SECONDS, 4 * SECONDS))
        signal.alarm(10 * SECONDS)
        verdict = 1
        try:
            options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", f"--basetemp={folder}/files"]
            verdict = int(pytest.main([*options, *tests])) if _applied(mutant) else _NOT_APPLIED
        finally:
            os._exit(verdict)
    status = os.waitpid(child, 0)[1]
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it started
    if os.WIFSIGNALED(status):
        return "out of time"
    return {0: "survived", _NOT_APPLIED: "not applied"}.get(os.WEXITSTATUS(status), "killed")


def main() -> None:
    """Run some mutants, chosen by a seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=5)
    parser.add_argument("--room", default="", help="a folder of src/chunkmill; by default any")
    options = parser.parse_args()
    mutants = [mutant for path in sorted((PACKAGE / options.room).rglob("*.py")) for mutant in mutants_of(path)]
    if not options.room and (gone := HARMLESS.keys() - {mutant.place for mutant in mutants}):
        sys.exit(f"HARMLESS names what is not in the package: {gone}")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        environment = os.environ | {"MUTANTS": folder, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "mutants", *TESTS], cwd=ROOT, env=environment, check=True
        )
        tests = Tests(Path(folder))
        tests.coverage.load()
        for name in ["distributed", "zarr", *(m.name for m in pkgutil.walk_packages([str(PACKAGE)], "chunkmill."))]:
            importlib.import_module(name)  # once for all children
        for mutant in random.Random(options.seed).sample(mutants, options.number):
            verdict = run(mutant, tests.entering(mutant), folder)
            before, after = mutant.texts
            reason = HARMLESS.get(mutant.place, "") if verdict == "survived" else ""
            verdict = "harmless" if reason else verdict
            counts[verdict] += 1
            if verdict != "killed":
                where = f"{mutant.place[0]}:{mutant.node.lineno} ({mutant.kind})"
                print(f"{verdict:11} {where}: {before!r} -> {after!r}", reason, flush=True)
        print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())))


if __name__ == "__main__":
    main()
