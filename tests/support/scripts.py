"""Scripts in processes of their own: nothing is imported before them."""

import os
import subprocess
import sys


def run_script(text, *arguments, **environment):
    """Run Python code in another process, without Dask's variables but those that are given; return what it prints."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")} | environment
    command = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.run(command, env=known, capture_output=True, text=True, check=True).stdout.strip()
