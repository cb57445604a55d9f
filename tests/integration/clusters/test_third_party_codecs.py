"""Codecs of other packages: found by the entry points of an installed package, in this process and in a cluster's."""

import os
import subprocess
import sys

import pytest

ENTRY_POINTS = """
[numcodecs.codecs]
acme-flip = acme_codecs:Flip
"""

PACKAGE = '''
import numpy as np
from numcodecs.abc import Codec


class Flip(Codec):
    """All bits the other way."""

    codec_id = "acme-flip"

    def encode(self, buf):
        return bytes(~np.frombuffer(buf, "u1"))

    def decode(self, buf, out=None):
        return self.encode(buf)
'''

READ = """
import sys, numpy as np, chunkmill as cm
from distributed import Client, LocalCluster

if __name__ == "__main__":
    values = np.arange(12, dtype="<i4").reshape(4, 3)
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        for path, format, codec in (("v2", "zarr2", {"id": "acme-flip"}), ("v3", "zarr3", "numcodecs.acme-flip")):
            cm.to_store(values, f"{sys.argv[1]}/{path}", format=format, chunks=(2, 3), codecs=[codec])
            assert (cm.from_store(f"{sys.argv[1]}/{path}").compute() == values).all(), path
            print(path, cm.open_array(f"{sys.argv[1]}/{path}").codecs[-1].name)
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


@pytest.mark.slow
def test_entry_points_of_an_installed_package(tmp_path, site):
    script = tmp_path / "read.py"
    script.write_text(READ)
    path = os.pathsep.join([str(site), *sys.path])
    command, environment = [sys.executable, script, tmp_path], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{path} numcodecs.acme-flip" for path in ("v2", "v3")]
