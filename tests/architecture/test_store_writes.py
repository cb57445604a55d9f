"""Who writes to stores: documents by `chunkmill.nodes.documents` alone, everything else by functions named here."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "chunkmill"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "stores")
WRITES = {"set", "set_if", "set_parts"}
NO_STORES = {"config", "write_guard", "axis", "stopped"}  # dask's settings, a context variable, a plot's, an event

WRITERS = {
    # documents: each only while it is what was read
    "nodes/documents.py": {
        "_create_node",
        "_write",
        "_write_while_absent",
        "_written_if_absent",
        "put_back",
        "replace",
    },
    "nodes/consolidated.py": {"refresh_consolidated", "write_consolidated"},
    # documents that nobody sees: of a node written beside the one that it replaces, or of one that is being deleted
    "nodes/replacement.py": {"Replacement.finish", "ReplacementOfJob.finish", "ReplacementOfJob.mark_staged"},
    "nodes/replaced.py": {"check_as_seen"},  # a note in the journal
    "runtime/exchange.py": {
        "_claimed",
        "_delete_documents.delete",
        "_exchange",
        "_write_documents.write",
        "note_exchange",
    },
    "nodes/delete.py": {"delete_node", "_described"},
    # chunks
    "array/chunk_io.py": {"update_chunk", "write_chunk"},
    "array/pending_writes.py": {"_Later.set"},
    "nodes/resize.py": {"_reset"},
    "conversion/convert_tasks.py": {"_put", "_put_shard"},
    "conversion/rechunking/intermediate_files.py": {"write_intermediate_file"},
    # journals, heartbeats and probes, under names that no format takes for a node
    "runtime/record_files.py": {"RecordFiles._merge", "RecordFiles.forget"},
    "runtime/journal.py": {"Journal._mark_new", "Journal.discard", "Journal.finish", "Journal.record"},
    "runtime/plan_document.py": {"delete_plan", "mark_over", "store_plan"},
    "runtime/unfinished_jobs.py": {"_release_briefly"},
    "runtime/attempts.py": {"Attempt.begin", "Attempt._beat"},
    "runtime/published.py": {"note_published", "withdraw_published.withdraw"},
    "runtime/preflight.py": {"_lacks"},
    # files of reference sets
    "references/files.py": {"SetFile._put", "SetFile._write_files", "SetFile.write"},
}
"""Module -> functions that write values, sorted by what they write."""


def writers(source):
    """Yield the functions in which a method of a store is named that writes a value; lambdas belong to theirs."""

    def visit(node, names):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = (*names, node.name)
        if isinstance(node, ast.Attribute) and node.attr in WRITES:
            receiver = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if receiver not in NO_STORES:
                yield ".".join(names)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WRITES - {"set"}:
            yield ".".join(names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, names)

    return set(visit(ast.parse(source), ()))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_values_are_stored_by_the_functions_that_may(path):
    assert writers(path.read_text()) == set(WRITERS.get(str(path.relative_to(PACKAGE)), ()))


def test_every_way_to_write_is_met():
    text = """
class A:
    def f(self): self.store.set("k", b"")
    def g(self): return lambda: guarded(self.store).set_if("k", b"", None)
def h(store): write = store.set; set_parts(store, "k", [])
def i(): set([1]); config.set(x=1); dask.config.set(x=1); write_guard.set(None)
"""
    assert writers(text) == {"A.f", "A.g", "h"}
