"""The jobs of one peer, answered in its own environment: ``python read_with_….py JOBS OUT``. Runs on Python 3.8 and later.

JOBS is a JSON list of ``{"store", "path", "kind"}``. OUT is a new folder: ``<n>.npy`` for each job that succeeded, and
``answers.json`` with a list of ``{"error"}`` or ``{"attributes", "names"}``.
"""

import json
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np


def answer(read):
    """Answer the jobs that the command line names, each by what `read` returns of it or raises."""
    warnings.simplefilter("ignore")
    jobs, out = map(Path, sys.argv[1:])
    out.mkdir()
    answers = []
    for n, job in enumerate(json.loads(jobs.read_text())):
        try:
            values, found = read(job)
            np.save(str(out / f"{n}.npy"), values, allow_pickle=True)
        except BaseException as error:  # noqa: BLE001 - what Rust panics with is no Exception
            found = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc(limit=-2)}
        answers.append(found)
    (out / "answers.json").write_text(json.dumps(answers))
