"""Links that a stranger laid at names of ours: nothing that they lead to is read, written or deleted (P13)."""

import base64
import hashlib
import json
import os
import shutil
from contextlib import suppress
from itertools import product

import dask.array as da
import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm

pytestmark = pytest.mark.skipif(os.name == "nt", reason="LINKS ARE NOT TESTED: Windows lets few users make any")


def journal(path):
    return f".chunkmill-job-{hashlib.sha256(path.encode()).hexdigest()[:16]}"


def whole(folder, lay):
    (folder / lay).symlink_to(folder.parent / "home", target_is_directory=True)


def inside(name):
    def lay_inside(folder, own):
        (folder / own).mkdir()
        (folder / own / name).symlink_to(folder.parent / "home", target_is_directory=True)

    return lay_inside


def plan(folder, own):
    (folder / own).mkdir()
    (folder / own / "plan.json").symlink_to(folder.parent / "home" / "plan.json")


LINKS = {
    "journal": whole, "in the journal": inside("docs"), "heartbeats": inside("running"),
    "staged": inside("new-0123abcd"), "records": inside("0"), "intermediate": inside("intermediate"), "plan": plan,
}  # fmt: skip
VALUES = np.arange(16, dtype="i4").reshape(4, 4)


def discard_all(url):
    for job in cm.jobs(url):
        job.discard()


CALLS = {
    "check": lambda url: cm.check(url, repair=True),
    "replace": lambda url: cm.to_store(VALUES, url, "a", mode="w"),
    "replace by Dask": lambda url: cm.to_store(da.from_array(VALUES, chunks=2), url, "a", mode="w"),
    "resumable": lambda url: cm.to_store(da.from_array(VALUES, chunks=2), url, "a", mode="w", resume=True),
    "create": lambda url: cm.create_array(url, "a", shape=(2,), dtype="i4", overwrite=True),
    "delete": lambda url: cm.delete(url, "a"),
    "resize": lambda url: cm.open_array(url, "a", mode="r+").resize((2, 2)),
    "append": lambda url: cm.open_array(url, "a", mode="r+").append(VALUES),
    "convert": lambda url: cm.convert((url, "b"), (url, "a"), overwrite=True, format="zarr3"),
    "discard": discard_all,
}


@pytest.fixture(scope="module")
def two_arrays(tmp_path_factory):
    url = tmp_path_factory.mktemp("made") / "s.zarr"
    for path in "ab":
        cm.to_store(VALUES, url, path, chunks=(2, 2))
    return url


def made(folder, two_arrays):
    """Make a store of two arrays, and next to it a folder of somebody's; return both."""
    url, home = folder / "s.zarr", folder / "home"
    shutil.copytree(two_arrays, url)
    (home / "docs").mkdir(parents=True)
    (home / ".chunkmill-new-0123abcd").write_bytes(b"0123abcd")
    for name in (".bashrc", "docs/letter", "plan.json"):
        (home / name).write_bytes(b"{}")
    return url, home


def changes(home):
    return {path: path.stat().st_ctime_ns for path in sorted(home.rglob("*"))}


# each link with the calls that clear up and that write a journal of their own, each call with a link to all of it
LINKS_AND_CALLS = {*product(LINKS, ["check", "resumable"]), *product(["journal"], CALLS)}


@cases(("link", "call"), sorted(LINKS_AND_CALLS))
def test_nothing_that_a_link_leads_to_is_touched(tmp_path, two_arrays, link, call):
    url, home = made(tmp_path, two_arrays)
    before = changes(home)
    LINKS[link](url, journal("a"))
    CALLS[call](url)
    assert changes(home) == before
    cm.check(url, repair=True)
    assert changes(home) == before
    assert not list(url.glob(".chunkmill*"))
    assert cm.check(url).ok


def crafted(path, old_prefix):
    """Return what the journal of a node at `path` holds that puts its files in the place of those of a prefix."""
    run = "0123abcd"
    plan = {"job": "j", "path": path, "run": run, "old_prefix": old_prefix, "fingerprint": "x"}
    values = {f"new-{run}/{name}": "evil" for name in (".bashrc", "c/0", "zarr.json")}
    return path, {"plan.json": json.dumps(plan), f"new-{run}/.chunkmill-new-{run}": run} | values


RECORDS = {
    "of another node": crafted("a", "out/"),
    "of the root": crafted("", "out/"),
    "of a node behind a link": crafted("out", "out/"),
    "of a node below a link": crafted("out/docs", "out/docs/"),
    "deletion": ("a", {"nodes.json": json.dumps({"out/.zarray": base64.b64encode(b"{}").decode()})}),
}
RECORDS_AND_CALLS = {*product(RECORDS, ["check", "replace"]), *product(["of another node", "deletion"], CALLS)}


@cases(("record", "call"), sorted(RECORDS_AND_CALLS))
def test_a_crafted_record_reaches_nothing_but_its_node(tmp_path, two_arrays, record, call):
    url, home = made(tmp_path, two_arrays)
    (url / "out").symlink_to(home, target_is_directory=True)
    before = changes(home)
    path, values = RECORDS[record]
    for name, value in values.items():
        (file := url / journal(path) / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value)
    with suppress(cm.ChunkmillError):
        CALLS[call](url)
    with suppress(cm.ChunkmillError):
        cm.check(url, repair=True)
    assert changes(home) == before
