"""Which functions change stores: documents by `chunkmill.nodes.documents` alone, all else by functions named here."""

import ast
from pathlib import Path

from support.code_lines import parse

PACKAGE = Path(__file__).parents[2] / "src" / "chunkmill"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "stores")
METHODS = {
    "bare": {"set_if"},
    "write": {"set", "set_if", "set_parts"},
    "delete": {"delete", "delete_listed", "delete_many", "delete_prefix"},
    "move": {"replace_prefix"},
}
CHANGES = {"create", "swap", "update"}
NO_STORES = {
    "config",
    "_left_out",
    "write_guard",
    "axis",
    "stopped",
    "_OWN",
    "_PARSED",
    "over",
}  # settings, a context variable, a plot's, events

WRITERS = {
    # documents that nobody sees: of a staged node, or of one that is being deleted
    "nodes/target.py": {"Target._put_in_place"},
    # chunks
    "array/chunk_io.py": {"update_chunk", "write_chunk"},
    "conversion/convert_tasks.py": {"_put", "_put_shard"},
    "conversion/rechunking/intermediate_files.py": {"write_intermediate_file"},
    # journals and probes, under names that no format takes for a node
    "journal/records.py": {"Records.put"},
    "nodes/delete.py": {"delete_node", "announce_below"},
    "runtime/preflight.py": {"_lacks"},
    "checks/doctor.py": {"_examine_store"},
    # files of a set, and chunks that a set holds itself
    "references/files.py": {"SetFile._write_files", "Repository._write_chunks"},
    # records of files, and files of a set that is not one yet
    "scans/records.py": {"Records.put"},
    # versions that stay when a job has ended, in a folder of their own
}
"""Module -> functions that write values, sorted by what they write; documents change by `CHANGERS` alone."""

CHANGERS = {
    "nodes/documents.py": {
        "create_node",
        "_write_first",
        "put_back",
        "refresh_consolidated",
        "change",
        "write_consolidated",
    },
    "nodes/target.py": {"Target._put_in_place"},
    "nodes/changes.py": {"_reset"},
    "journal/heartbeat.py": {"Heartbeat._beat", "Heartbeat.begin", "Heartbeat.end"},
    "journal/journal.py": {
        "Journal._drop_damaged",
        "Journal._tag_staged",
        "Journal.begin",
        "Journal.discard",
        "Journal.finish",
    },
    "journal/plans.py": {"end_plan"},
    "journal/unfinished.py": {"clear_journal"},
    "checks/check.py": {"_repaired"},
    "checks/inventory.py": {"_delete_blank"},
    "references/files.py": {"SetFile._put", "SetFile.write"},
    "runtime/locks.py": {"_change"},
}
"""Module -> functions that compare and swap, by `chunkmill.stores.conflicts`."""

BARE = {
    "array/chunk_io.py": {"update_chunk"},  # under a lock, and decoded again after each conflict
}
"""Module -> functions that call `set_if` themselves, each with its reason."""

DELETERS = {
    # nodes, their documents first
    "nodes/delete.py": {
        "_delete_folders",
        "_delete_keys",
        "clear",
        "delete_node",
        "delete_stored_chunks",
        "withdraw_below",
    },
    "conversion/stages.py": {"ConversionTasks.publish", "ConversionTasks.stages"},
    "xarray/publication.py": {"end_dead_append"},
    "checks/inventory.py": {"_delete_proof", "_leftovers"},
    # chunks
    "array/chunk_io.py": {"write_chunk"},
    "conversion/convert_tasks.py": {"_put"},
    "conversion/rechunking/intermediate_files.py": {"write_intermediate_file"},
    "conversion/rechunking/target_chunks.py": {"_delete"},
    "nodes/changes.py": {"_shrink"},
    "pyramids/tasks.py": {"_Work.block"},
    # staged nodes, and journals
    "nodes/target.py": {"Target.make_room", "Target.take_back"},
    "journal/heartbeat.py": {"Heartbeat.end", "end_dead"},
    "journal/unfinished.py": {"clear_listed"},
    "journal/journal.py": {"Journal._forget_commit", "Journal.release"},
    "journal/plans.py": {"end_plan", "forget_tag"},
    "runtime/preflight.py": {"_probing"},
    "checks/doctor.py": {"_examine_store"},
    "journal/records.py": {"Records.delete", "Records.forget"},
    "scans/records.py": {"Records.keep"},
    "references/files.py": {"SetFile.write"},
    "runtime/locks.py": {"_in_store"},
}
MOVERS = {
    "journal/plans.py": {"put_in_place"},
}


ALLOWED = {"bare": BARE, "swap": CHANGERS, "write": WRITERS, "delete": DELETERS, "move": MOVERS}


def changes(source):
    """Yield how and in which function a store is changed, by its dotted name; lambdas belong to theirs."""
    tree = parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    swaps = {a.name for node in imports if node.module == "chunkmill.stores.conflicts" for a in node.names} & CHANGES
    if any(a.name == "conflicts" for node in imports if node.module == "chunkmill.stores" for a in node.names):
        swaps |= {f"conflicts.{name}" for name in CHANGES}

    def visit(node, function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        if isinstance(node, ast.Call) and ast.unparse(node.func) in swaps:
            yield "swap", function
        named = method_named(node)
        yield from ((how, function) for how, methods in METHODS.items() if named in methods)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function)

    return visit(tree, "")


def method_named(node):
    """Return the method of a store that is named, perhaps by a function of the same name, or by `getattr`."""
    if isinstance(node, ast.Attribute) and getattr(node.value, "attr", getattr(node.value, "id", "")) not in NO_STORES:
        return node.attr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id != "set":  # which is Python's
        return getattr(node.args[1], "value", None) if node.func.id == "getattr" else node.func.id
    return None


def test_stores_are_changed_by_the_functions_that_may():
    """Values are compared and swapped by one helper, which alone knows of responses that are lost."""
    found = {(how, str(p.relative_to(PACKAGE)), name) for p in SOURCES for how, name in changes(p.read_text())}
    assert found == {(how, module, name) for how, some in ALLOWED.items() for module in some for name in some[module]}


def test_every_way_to_write_is_met():
    text = """
class A:
    def f(self): self.store.set("k", b"")
    def g(self): return lambda: guarded(self.store).set_if("k", b"", None)
def h(store): write = store.set; set_parts(store, "k", [])
def i(): set([1]); config.set(x=1); dask.config.set(x=1); write_guard.set(None)
async def j(store): getattr(store, "set_if")("k", b"", None)
"""
    assert {function for how, function in changes(text) if how == "write"} == {"A.f", "A.g", "h", "j"}
