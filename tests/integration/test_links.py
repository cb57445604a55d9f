"""Links that a stranger laid at names of ours: nothing that they lead to is read, written or deleted (P13)."""

import hashlib

import dask.array as da
import numpy as np
import pytest

import chunkmill as cm


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
    "journal": whole,
    "in the journal": inside("docs"),
    "heartbeats": inside("running"),
    "staged": inside("new-0123abcd"),
    "records": inside("0"),
    "intermediate": inside("intermediate"),
    "plan": plan,
}
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


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("link", LINKS)
def test_nothing_that_a_link_leads_to_is_touched(tmp_path, link, call):
    url = tmp_path / "s.zarr"
    for path in "ab":
        cm.to_store(VALUES, url, path, chunks=(2, 2))
    home = tmp_path / "home"
    (home / "docs").mkdir(parents=True)
    (home / ".chunkmill-new-0123abcd").write_bytes(b"0123abcd")
    for name in (".bashrc", "docs/letter", "plan.json"):
        (home / name).write_bytes(b"{}")
    before = {path: path.stat().st_ctime_ns for path in sorted(home.rglob("*"))}
    LINKS[link](url, journal("a"))
    CALLS[call](url)
    assert {path: path.stat().st_ctime_ns for path in sorted(home.rglob("*"))} == before
    cm.check(url, repair=True)
    assert {path: path.stat().st_ctime_ns for path in sorted(home.rglob("*"))} == before
    assert not list(url.glob(".chunkmill*"))
    assert cm.check(url).ok
