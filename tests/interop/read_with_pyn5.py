"""Read many N5 datasets with pyn5 (rust-n5), in its own environment: ``python read_with_pyn5.py JOBS OUT``.

Needs Python 3.8, pyn5 1.1.1 and numpy 1.24. pyn5 refuses every major version of N5 but its own 2 and the lack of any, for no
reason in the data: the jobs' stores must say 2.0.0.
"""

import pyn5
from answers import answer

HIDDEN = {"dimensions", "blockSize", "dataType", "compression", "n5"}


def read(job):
    with pyn5.File(job["store"], mode="r") as file:
        dataset = file[job["path"]]
        attributes = {name: value for name, value in dict(dataset.attrs).items() if name not in HIDDEN}
        return dataset[()], {"attributes": attributes, "names": None}


if __name__ == "__main__":
    answer(read)
