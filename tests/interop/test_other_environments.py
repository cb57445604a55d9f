"""What we write is read exactly by zarr-python 2 (Zarr v2 and N5), the newest zarr-python 3 and pyn5: the golden stores, copied."""

import json

import pytest
from interop.corpus import GOLDENS, UNWRITTEN, copy
from interop.environments import interpreter, read_all
from interop.matrix import ARRAYS, write
from interop.verdict import judge_all


def judge_copies(peer, answers, wanted):
    def give(answer):
        if isinstance(answer, Exception):
            raise answer
        return answer

    found = [
        judge_all(peer, name, lambda a=a: give(a), expected)
        for a, (name, expected) in zip(answers, wanted, strict=True)
    ]
    wrong = list(filter(None, found))
    assert not wrong, "\n".join(wrong)


def copies(formats, folder):
    for golden in GOLDENS:
        if golden.format in formats and golden.id not in UNWRITTEN:
            store = copy(golden, folder)
            for expected in golden.arrays:
                yield golden, store, expected


def test_zarr_python_2(tmp_path):
    python = interpreter("zarr2", demanded=True)
    (tmp_path / "stores").mkdir()
    jobs, wanted = [], []
    for golden, store, expected in copies({"zarr2", "n5"}, tmp_path / "stores"):
        kind = "n5" if golden.format == "n5" else "consolidated" if "consolidated" in golden.name else "zarr"
        for each in [kind, "n5fs"] if kind == "n5" else [kind]:
            jobs.append({"store": str(store), "path": expected.path, "kind": each})
            wanted.append((golden.key(expected.path), expected))
    for n, made in enumerate(made for made in ARRAYS if made.format in {"zarr2", "n5"}):
        store = tmp_path / "stores" / f"made-{n}"
        write(made, store)
        jobs.append({"store": str(store), "path": "a", "kind": "n5" if made.format == "n5" else "zarr"})
        wanted.append((made.key, made.expected()))
    assert len(jobs) > 650
    judge_copies("zarr-python 2", read_all(python, "read_with_zarr_2.py", jobs, tmp_path), wanted)


@pytest.mark.filterwarnings("ignore:.*read as:UserWarning")  # serializers without endian
@pytest.mark.filterwarnings("ignore:a dimension name occurs twice")
def test_the_newest_zarr_python(tmp_path):
    """Where there is a Python 3.12, which zarr-python needs since 3.2."""
    python = interpreter("zarr3", demanded=False)
    (tmp_path / "stores").mkdir()
    jobs, wanted = [], []
    for golden, store, expected in copies({"zarr2", "zarr3"}, tmp_path / "stores"):
        jobs.append({"store": str(store), "path": expected.path, "kind": golden.format})
        wanted.append((golden.key(expected.path), expected))
    for n, made in enumerate(made for made in ARRAYS if made.format in {"zarr2", "zarr3"}):
        store = tmp_path / "stores" / f"made-{n}"
        write(made, store)
        jobs.append({"store": str(store), "path": "a", "kind": made.format})
        wanted.append((made.key, made.expected()))
    assert len(jobs) > 850
    judge_copies("zarr-python 3.4", read_all(python, "read_with_zarr_3.py", jobs, tmp_path), wanted)


def test_pyn5(tmp_path):
    """Not in CI: pyn5 has wheels for Python 3.8 alone."""
    python = interpreter("pyn5", demanded=False, way="made by hand, with Python 3.8")
    (tmp_path / "stores").mkdir()
    jobs, wanted = [], []
    for golden, store, expected in copies({"n5"}, tmp_path / "stores"):  # the version alone is not ours
        root = store / "attributes.json"
        root.write_text(json.dumps(json.loads(root.read_text()) | {"n5": "2.0.0"}))
        jobs.append({"store": str(store), "path": expected.path})
        wanted.append((golden.key(expected.path), expected))
    judge_copies("pyn5", read_all(python, "read_with_pyn5.py", jobs, tmp_path), wanted)
