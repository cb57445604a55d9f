"""Read many N5 datasets with pyn5 (rust-n5), in its own environment: ``python read_with_pyn5.py JOBS OUT``.

JOBS and OUT are those of ``read_with_zarr_2.py``. Needs Python 3.8, pyn5 1.1.1 and numpy 1.24. pyn5 refuses every major version of
N5 but its own 2 and the lack of any, for no reason in the data: the jobs' stores must say 2.0.0.
"""

import json
import sys
import traceback
from pathlib import Path

import numpy as np
import pyn5

HIDDEN = {"dimensions", "blockSize", "dataType", "compression", "n5"}


def read(job):
    with pyn5.File(job["store"], mode="r") as file:
        dataset = file[job["path"]]
        attributes = {name: value for name, value in dict(dataset.attrs).items() if name not in HIDDEN}
        return dataset[()], {"attributes": attributes, "names": None}


def main(jobs, out):
    out.mkdir()
    answers = []
    for n, job in enumerate(json.loads(jobs.read_text())):
        try:
            values, answer = read(job)
            np.save(str(out / f"{n}.npy"), values)
        except BaseException as error:  # noqa: BLE001 - what Rust panics with is no Exception
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc(limit=-2)}
        answers.append(answer)
    (out / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
