"""A user's script under mypy and pyright: what is right passes, and each mistake is found in its line."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
CHECKERS = {
    "mypy": [BIN / "mypy", "--strict", "--no-error-summary", "--hide-error-context"],
    "pyright": [BIN / "basedpyright", "--level", "error", "--pythonpath", sys.executable],
}

START = """
from typing import Any

import numpy as np
import numpy.typing as npt

import chunkmill as cm
from chunkmill.dask_arrays.write import WriteReport

x = np.ones((4, 4))
array = cm.open_array("a.zarr", mode="r+")
group = cm.open_group("b.zarr")
flag = bool(len(group))
"""

RIGHT = """
report: WriteReport = cm.to_store(x, "a.zarr", format="zarr3", chunks=(2, 2), chunk_key_encoding="/")
n: int = cm.to_store(x, ("a.zarr", "b"), mode="w").n_keys
later = cm.to_store(x, group, "b", compute=False)
stored: int = cm.store([x], [array], return_stored=True)[0].ndim
either = cm.to_store(x, "a.zarr", compute=flag)
reports: list[WriteReport] = cm.store([x], [array, ("a.zarr", "b")])
lazily = cm.from_store(array, name="x").ndim
shape: tuple[int, ...] = array.append(x, axis=1)
same: cm.Array = array.resize((3, 4)).update_attributes({"units": "K"})
values: npt.NDArray[Any] = array[1:, 0]
n_values: int = array[...].size + array[[0, 2]].size + array[array[:] > 0].size
value: float = array[0, np.int64(1)] + array[3][0]
child: cm.Array = group.array("x")
below: cm.Group = group.create_group("y").group("z")
names: list[str] = [*group.keys(), *(name for name, _ in group.items())]
plan: cm.Plan = cm.plan_convert("a.zarr", "b.zarr", format="zarr2", chunks={"x": -1}, max_mem="1 GiB", include=["a*"])
done: cm.Report = cm.rechunk("a.zarr", "c.zarr", chunks=(-1, 2), strategy="spill", region={"x": slice(0, 9)})
part: cm.Plan = cm.plan_convert("a.zarr", "b.zarr", format="n5", region=(slice(0, 9), ...))
again: cm.Report = part.run(resume=False, progress=False)
result: cm.Report = plan.run()
image: cm.Report = cm.pyramid(x, "i.zarr", factors={"x": 2}, scale=(4, 1), units="um", translation={"x": 0.5})
blocks: cm.Report = cm.transform(np.square, array, ("e.zarr", "sq"), halo={"x": (1, 2)}, block=(4, -1), boundary="nearest")
near = cm.from_store("a.zarr", region=(slice(0, 2), ...), chunks={0: -1})
new = cm.create_array("d.zarr", shape=(4,), dtype="i4", format="n5")
cm.delete("d.zarr")
"""

MISTAKES = ['cm.open("a.zarr", format="zar2")', 'cm.open_array("a.zarr", moed="r")',
    'cm.open_group("a.zarr", mode="w")', 'cm.from_store("a.zarr", chnks=(2, 2))',
    'cm.create_array("a.zarr", shape=(4,), dtype="i4", format="zarr3-experimental")',
    'cm.create_array("a.zarr", shape=(4,), dtype="i4", chunk_key_encoding="-")',
    'cm.create_group("a.zarr", format="zar2")', 'cm.to_store(x, "a.zarr", format="zar2")',
    'cm.to_store(x, "a.zarr", chnks=(2, 2))', 'cm.to_store(x, "a.zarr", moed="r")',
    'cm.to_store(x, "a.zarr", mode="x")', 'late: WriteReport = cm.to_store(x, "a.zarr", compute=False)',
    "cm.store([x], [array], return_stored=True)[0].n_keys", "cm.store([x], [5])",
    'cm.plan_convert("a.zarr", "b.zarr", format="zar2")',
    'cm.convert("a.zarr", "b.zarr", format="n5", max_men="1 GiB")',
    'cm.convert("a.zarr", "b.zarr", format="n5", region=3)', 'cm.plan_rechunk("a.zarr", "b.zarr", chnks=(2, 2))',
    'cm.rechunk("a.zarr", "b.zarr", chunks=(2, 2), strategy="fast")', "plan.run(resmue=False)", "array.resize()", "array[1:].shpae",
    'cm.plan_convert("a.zarr", "b.zarr", chunks=2.5)', 'cm.rechunk("a.zarr", 5, chunks=(2, 2))', 'cm.pyramid(x, "b.zarr", scale=None, factors=None)',
    'cm.to_store(x, "a.zarr", chunks=2.5)', "array.to_dask(region=3)", "array.append(x, axsi=0)", 'array.attributes["units"] = "K"', 'group.create_array("x", shape=(4,), dtpye="i4")',
    'group.array("x").groups()']  # fmt: skip


def errors(checker, script, folder):
    """Return the numbers of the lines in which a checker finds errors, and all that it says."""
    path = folder / "script.py"
    path.write_text(script)
    if not CHECKERS[checker][0].exists():
        pytest.skip(f"no {checker} beside this Python: pip install --group check")
    done = subprocess.run([*CHECKERS[checker], path], cwd=ROOT, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    found = [line for line in said.splitlines() if "error" in line and f"{path.name}:" in line]
    return {int(line.partition(f"{path.name}:")[2].partition(":")[0]) for line in found}, said


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_what_is_right_passes_and_each_mistake_is_found(checker, tmp_path):
    right = START + RIGHT
    n = len(right.splitlines())
    found, said = errors(checker, right + "\n".join(MISTAKES) + "\n", tmp_path)
    assert found == set(range(n + 1, n + 1 + len(MISTAKES))), said
