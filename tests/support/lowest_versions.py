"""Print constraints for pip: the lowest versions that pyproject.toml allows, for ``make test-matrix``.

Those of what the library needs and of its extras; what only the tests or the demo need has the versions of
constraints.txt, without which pip would search for hours.
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
OF_THE_DEMO = "demo"

FOLLOWING = {
    **dict.fromkeys(
        (
            "distributed",
            "multidict",
            "nilearn",
            "pandas",
            "pathlib-abc",
            "scikit-learn",
            "scipy",
            "s3transfer",
            "urllib3",
            "wrapt",
            "yarl",
        )
    ),
    "aiobotocore": "2.26.0",
    "boto3": "1.41.5",
    "botocore": "1.41.5",
}
"""What the lowest dask, s3fs and universal-pathlib need other versions of than constraints.txt has.

Of S3's, the versions that moto takes, too.
"""


def lowest_versions() -> Mapping[str, str]:
    """Return the version of each package that has one."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = dict(lowest(line) for line in lines if line and not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    required = [*project["dependencies"], *(line for name in extras if name != OF_THE_DEMO for line in extras[name])]
    versions = pinned | FOLLOWING | dict(map(lowest, required))
    return {name: version for name, version in sorted(versions.items()) if version is not None}


def lowest(requirement: str) -> tuple[str, str]:
    """Return the lowest version that one requirement allows.

    Examples
    --------
    >>> lowest("dask[array,distributed]>=2026.3"), lowest("zfpy==1.0.1")
    (('dask', '2026.3'), ('zfpy', '1.0.1'))
    """
    found = re.fullmatch(r"([\w.-]+)(?:\[[^]]*\])?[>=]=([\w.]+)", requirement)
    if found is None:
        raise ValueError(f"{requirement!r} names no lowest version: write name>=version")
    return found[1].replace("_", "-").lower(), found[2]


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in lowest_versions().items())
