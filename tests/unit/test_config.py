"""Settings: what the code reads is what the defaults list, and what users set wins."""

import re
import subprocess
import sys
from pathlib import Path

import dask
import pytest

from chunkmill.config import DEFAULTS

SOURCE = Path(__file__).parents[2] / "src" / "chunkmill"


def test_every_setting_that_is_read_has_a_default_and_the_other_way_round():
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    read = set(re.findall(r"config\.get\(\s*[\"']chunkmill\.([\w.-]+)", text))
    assert read == set(DEFAULTS["chunkmill"])


@pytest.mark.parametrize("name", sorted(DEFAULTS["chunkmill"]))
def test_defaults_are_in_force(name):
    assert dask.config.get(f"chunkmill.{name}") == DEFAULTS["chunkmill"][name]


def test_what_users_set_wins():
    code = "import chunkmill, dask; print(dask.config.get('chunkmill.max-mem'), dask.config.get('chunkmill.progress'))"
    environment = {"DASK_CHUNKMILL__MAX_MEM": "1GiB"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1GiB", "auto"]
