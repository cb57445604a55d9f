"""What we write is read exactly by zarr-python 2 (Zarr v2 and N5), the newest zarr-python 3 and pyn5: the golden stores, copied."""

import json

import pytest
from interop.corpus import GOLDENS, UNWRITTEN, copy
from interop.environments import interpreter, read_all
from interop.matrix import ARRAYS, write
from interop.verdict import complaint

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*read as:UserWarning"),  # serializers without endian
    pytest.mark.filterwarnings("ignore:a dimension name occurs twice"),
]


def judge(peer, python, script, jobs, folder):
    """Hold what the peer reads of each store, path and kind against what is expected there."""
    asked = [{"store": str(store), "path": expected.path, "kind": kind} for store, kind, _, expected in jobs]
    answers = read_all(python, script, asked, folder)
    found = [complaint(peer, job[2], answer, job[3]) for answer, job in zip(answers, jobs, strict=True)]
    wrong = list(filter(None, found))
    assert not wrong, "\n".join(wrong)


def copies(formats, folder):
    folder.mkdir()
    for golden in GOLDENS:
        if golden.format in formats and golden.id not in UNWRITTEN:
            store = copy(golden, folder)
            for expected in golden.arrays:
                yield golden, store, expected


def made(formats, folder):
    """Write the arrays of the matrix; yield their jobs."""
    for n, each in enumerate(each for each in ARRAYS if each.format in formats):
        write(each, folder / f"made-{n}")
        yield folder / f"made-{n}", each.format, each.key, each.expected()


def test_zarr_python_2(tmp_path):
    python = interpreter("zarr2", demanded=True)
    jobs = []
    for golden, store, expected in copies({"zarr2", "n5"}, tmp_path / "stores"):
        kinds = ["n5", "n5fs"] if golden.format == "n5" else ["zarr2"]
        if "consolidated" in golden.name:
            kinds = ["consolidated"]
        jobs += [(store, kind, golden.key(expected.path), expected) for kind in kinds]
    jobs += made({"zarr2", "n5"}, tmp_path / "stores")
    assert len(jobs) > 600
    judge("zarr-python 2", python, "read_with_zarr_2.py", jobs, tmp_path)


def test_the_newest_zarr_python(tmp_path):
    """Where there is a Python 3.12, which zarr-python needs since 3.2."""
    python = interpreter("zarr3", demanded=False)
    found = copies({"zarr2", "zarr3"}, tmp_path / "stores")
    jobs = [(store, golden.format, golden.key(expected.path), expected) for golden, store, expected in found]
    jobs += made({"zarr2", "zarr3"}, tmp_path / "stores")
    assert len(jobs) > 800
    judge("zarr-python 3.4", python, "read_with_zarr_3.py", jobs, tmp_path)


def test_pyn5(tmp_path):
    """Not in CI: pyn5 has wheels for Python 3.8 alone."""
    python = interpreter("pyn5", demanded=False, way="made by hand, with Python 3.8")
    jobs = []
    for golden, store, expected in copies({"n5"}, tmp_path / "stores"):  # the version alone is not ours
        root = store / "attributes.json"
        root.write_text(json.dumps(json.loads(root.read_text()) | {"n5": "2.0.0"}))
        jobs.append((store, "n5", golden.key(expected.path), expected))
    judge("pyn5", python, "read_with_pyn5.py", jobs, tmp_path)
