"""Who changes stores: documents by `chunkmill.nodes.documents` alone, everything else by functions named here."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "chunkmill"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "stores")
WRITES = {"set", "set_if", "set_parts"}
DELETES = {"delete", "delete_keys", "delete_listed", "delete_many", "delete_prefix"}
MOVES = {"copy_value", "replace_prefix", "swap_in"}
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
    "nodes/replacement.py": {"Replacement.finish", "ReplacementOfJob.mark_staged", "ReplacementOfJob.stage"},
    "nodes/replaced.py": {"check_as_seen"},  # a note in the journal
    "journal/exchange.py": {
        "_claimed",
        "_delete_documents.delete",
        "_exchange",
        "_write_documents.write",
        "store_note",
    },
    "journal/exchange_together.py": {"note_others"},
    "nodes/delete.py": {"delete_node", "_described"},
    # chunks
    "array/chunk_io.py": {"update_chunk", "write_chunk"},
    "array/pending_writes.py": {"_Later.set"},
    "nodes/resize.py": {"_reset"},
    "conversion/convert_tasks.py": {"_put", "_put_shard"},
    "conversion/rechunking/intermediate_files.py": {"write_intermediate_file"},
    # journals, heartbeats and probes, under names that no format takes for a node
    "journal/record_files.py": {"RecordFiles._merge", "RecordFiles.forget", "RecordFiles.put"},
    "journal/clearing.py": {"_claimed"},
    "journal/journal.py": {"Journal._mark_new", "Journal.discard", "Journal.finish", "Journal.record"},
    "journal/plan_document.py": {"delete_plan", "mark_over", "store_plan"},
    "journal/unfinished_jobs.py": {"_release_briefly"},
    "journal/attempts.py": {"Attempt.begin", "Attempt._beat"},
    "journal/published.py": {"note_published", "withdraw_published.withdraw"},
    "runtime/preflight.py": {"_lacks"},
    "checks/doctor.py": {"_examine_workers", "_probed"},
    # files of reference sets
    "references/files.py": {"SetFile._put", "SetFile._write_files", "SetFile.write"},
}
"""Module -> functions that write values, sorted by what they write."""

DELETERS = {
    # nodes, their documents first
    "nodes/placement.py": {"_delete_node", "delete_stored_chunks"},
    "nodes/delete.py": {"_delete_folders", "_delete_keys", "delete_node"},
    "conversion/target_writer.py": {"TargetWriter.publish", "TargetWriter.stages"},
    "xarray/reservation.py": {"make_room"},
    "checks/check.py": {"_remove"},
    # chunks
    "array/chunk_io.py": {"write_chunk"},
    "array/pending_writes.py": {"_Later.delete"},
    "conversion/convert_tasks.py": {"_put"},
    "conversion/rechunking/intermediate_files.py": {"write_intermediate_file"},
    "conversion/rechunking/target_chunks.py": {"_delete"},
    "nodes/resize.py": {"_shrink"},
    "pyramids/tasks.py": {"_Work._below"},
    # what was written beside a node, and journals
    "nodes/replacement.py": {"Replacement.discard"},
    "journal/exchange.py": {"_delete_staged", "_exchange", "delete_note"},
    "journal/attempts.py": {"Attempt.end", "end_dead"},
    "journal/clearing.py": {"clear_listed"},
    "journal/journal.py": {"Journal._delete_mark", "Journal.record", "Journal.release"},
    "journal/plan_document.py": {"mark_over"},
    "runtime/preflight.py": {"_probing"},
    "checks/doctor.py": {"_examine_store", "_examine_workers"},
    "journal/record_files.py": {"RecordFiles.delete", "RecordFiles.forget", "RecordFiles.that_hold.true"},
    "runtime/job_handle.py": {"end_attempts"},
    "journal/unfinished_jobs.py": {"_release_briefly"},
    # files of reference sets
    "references/files.py": {"SetFile.write"},
}
MOVERS = {
    "nodes/replacement.py": {"Replacement.finish", "ReplacementOfJob.finish"},
    "journal/exchange.py": {"_exchange.copy"},
    "journal/exchange_together.py": {"complete_others"},
    "references/files.py": {"SetFile.write"},
}


def callers(source, methods):
    """Yield the functions in which one of these methods of a store is named; lambdas belong to theirs."""

    def visit(node, names):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = (*names, node.name)
        if isinstance(node, ast.Attribute) and node.attr in methods:
            receiver = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if receiver not in NO_STORES:
                yield ".".join(names)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            asked = [arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant)]
            if node.func.id in methods - {"set"} or (node.func.id == "getattr" and not methods.isdisjoint(asked)):
                yield ".".join(names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, names)

    return set(visit(ast.parse(source), ()))


@pytest.mark.parametrize(
    ("methods", "allowed"), [(WRITES, WRITERS), (DELETES, DELETERS), (MOVES, MOVERS)], ids=["write", "delete", "move"]
)
def test_stores_are_changed_by_the_functions_that_may(methods, allowed):
    found = {str(path.relative_to(PACKAGE)): callers(path.read_text(), methods) for path in SOURCES}
    assert {module: functions for module, functions in found.items() if functions} == allowed


def test_every_way_to_write_is_met():
    text = """
class A:
    def f(self): self.store.set("k", b"")
    def g(self): return lambda: guarded(self.store).set_if("k", b"", None)
def h(store): write = store.set; set_parts(store, "k", [])
def i(): set([1]); config.set(x=1); dask.config.set(x=1); write_guard.set(None)
async def j(store): getattr(store, "set_if")("k", b"", None)
"""
    assert callers(text, WRITES) == {"A.f", "A.g", "h", "j"}
