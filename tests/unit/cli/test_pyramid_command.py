"""The command that makes an image, and what others say of its levels."""

import re

from support.commands import run, run_json

import chunkmill as cm


def test_levels_of_an_image_are_described(tmp_path):
    cm.create_array(tmp_path / "in", "s0", shape=(4, 8, 8), dtype="u1", chunks=(4, 4, 4), fill_value=1)
    cm.create_array(tmp_path / "in", "s1", shape=(4, 8, 8), dtype="u1", chunks=(4, 4, 4))
    made = ["pyramid", tmp_path / "in", tmp_path / "out", "--path", "s0", "--join", "s1", "--levels", 2]
    run(*made, "--factors", "isotropic", "--scale", "z=4,y=2,x=2", "--units", "nanometer", "--translation", "3")
    shown = run("info", tmp_path / "out").stdout
    assert re.search(r"levels +0 \S+ 4, 8, 8\S+: c 1, z 4 nanometer, y 2 nanometer, x 2 nanometer\n", shown), shown
    level = run_json("info", tmp_path / "out")["levels"][1]
    assert (level["shape"], level["scale"], level["axes"]) == ([2, 4, 4, 4], [1, 4, 4, 4], ["c", "z", "y", "x"])
    assert "consolidated metadata: got 'none'" in run(*made, "--dry-run", "--consolidated", code=3).stderr
    cm.open_group(tmp_path / "out", mode="r+").update_attributes({"ome": {"version": "0.5", "multiscales": 1}})
    assert "levels" not in run_json("info", tmp_path / "out")
