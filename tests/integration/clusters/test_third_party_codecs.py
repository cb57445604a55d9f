"""Codecs of other packages: found by the entry points of an installed package, in this process and in a cluster's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ENTRY_POINTS = """
[numcodecs.codecs]
acme-flip = acme_codecs:Flip
"""

PACKAGE = '''
import numpy as np
from numcodecs.abc import Codec


class Flip(Codec):
    """All bits the other way, and so many zeros in front."""

    codec_id = "acme-flip"

    def __init__(self, pad=0):
        self.pad = pad

    def encode(self, buf):
        return bytes(self.pad) + bytes(~np.frombuffer(buf, "u1"))

    def decode(self, buf, out=None):
        return bytes(~np.frombuffer(buf, "u1")[self.pad :])
'''

READ = """
import os, sys, numpy as np, chunkmill as cm
from distributed import Client, LocalCluster

if __name__ == "__main__":
    values = np.arange(12, dtype="<i4").reshape(4, 3)
    cm.to_store(values, sys.argv[1], "written", format="zarr3", chunks=(2, 3), codecs=[{"name": "numcodecs.acme-flip"}])
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        for path in ("v2", "v3", "written"):
            a = cm.open_array(sys.argv[1] + "/v2" if path == "v2" else sys.argv[1], "" if path == "v2" else path)
            assert (a[...] == values).all(), path
            assert (a.to_dask().compute() == values).all(), path
            print(path, a.codecs[-1].name, dict(a.codecs[-1].configuration))
        pids = client.run(os.getpid)
        assert os.getpid() not in pids.values()
"""


@pytest.fixture
def site(tmp_path):
    """A folder of installed packages, with one in it."""
    folder = tmp_path / "site"
    about = folder / "acme_codecs-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-codecs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "acme_codecs.py").write_text(PACKAGE)
    return folder


def store_with(url: Path, codec: dict):
    """Write an array of Zarr v2 and one of v3 by hand, each of two chunks."""
    values = np.arange(12, dtype="<i4").reshape(4, 3)
    chunks = [bytes(3) + bytes(~values[i : i + 2].copy().view("u1").reshape(-1)) for i in (0, 2)]
    v2 = {
        "zarr_format": 2, "shape": [4, 3], "chunks": [2, 3], "dtype": "<i4", "order": "C", "fill_value": 0,
        "filters": None, "compressor": {"id": "acme-flip", "pad": 3},
    }  # fmt: skip
    v3 = {
        "zarr_format": 3, "node_type": "array", "shape": [4, 3], "data_type": "int32", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, codec],
    }  # fmt: skip
    for path, key, document, names in (
        ("v2", ".zarray", v2, ("0.0", "1.0")),
        ("v3", "zarr.json", v3, ("c/0/0", "c/1/0")),
    ):
        for name, data in zip((key, *names), (json.dumps(document).encode(), *chunks), strict=False):
            file = url / path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


@pytest.mark.slow
def test_entry_points_of_an_installed_package(tmp_path, site):
    url = tmp_path / "a.zarr"
    store_with(url, {"name": "numcodecs.acme-flip", "configuration": {"pad": 3}})
    script = tmp_path / "read.py"
    script.write_text(READ)
    path = os.pathsep.join([str(site), *sys.path])
    done = subprocess.run(
        [sys.executable, script, url],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name = "numcodecs.acme-flip"
    assert done.stdout.splitlines() == [f"v2 {name} {{'pad': 3}}", f"v3 {name} {{'pad': 3}}", f"written {name} {{}}"]
