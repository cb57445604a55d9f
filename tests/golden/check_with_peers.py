"""What other implementations make of every golden store: ``python check_with_peers.py [GOLDEN_DIR]``.

Run it in an environment that holds zarr-python 2, zarr-python 3 or tensorstore. Prints one line for each store that the peer does not read as
``cases.py`` says, and for each invalid store that it accepts. A peer that refuses a valid store is no failure of the store: see the table in
PROVENANCE.md. ``WRONG`` values in a store no peer reads rightly would be.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from _generate import CASES, Case, same, same_json


def read_zarr(store: Path, zarr_format: int, path: str) -> tuple[Any, Any]:
    import zarr

    if zarr.__version__.startswith("2"):
        opened: Any = zarr.ZipStore(str(store), mode="r") if store.suffix == ".zip" else zarr.DirectoryStore(str(store))
        array = zarr.open_array(opened, mode="r", path=path)
    else:
        opened = (
            zarr.storage.ZipStore(store, mode="r")
            if store.suffix == ".zip"
            else zarr.storage.LocalStore(store, read_only=True)
        )
        array = zarr.open_array(opened, mode="r", path=path, zarr_format=zarr_format)
    attributes = dict(array.attrs)
    attributes.pop("_ARRAY_DIMENSIONS", None)
    return array[...], attributes


def read_tensorstore(store: Path, zarr_format: int, path: str) -> tuple[Any, Any]:
    import tensorstore as ts

    kvstore = {"driver": "file", "path": f"{store}/{path}/" if path else f"{store}/"}
    if store.suffix == ".zip":
        kvstore = {"driver": "zip", "base": {"driver": "file", "path": str(store)}, "path": f"{path}/" if path else ""}
    return ts.open(
        {"driver": "zarr" if zarr_format == 2 else "zarr3", "kvstore": kvstore}
    ).result().read().result(), None


def check(read: Any, store: Path, case: Case, zarr_format: int) -> str:
    """Return ``ok``, ``WRONG ...`` or ``refuses ...``."""
    arrays = [(path, CASES[child]) for path, child in case.children.items()] if case.is_group else [(case.path, case)]
    for path, child in arrays:
        try:
            values, attributes = read(store, zarr_format, path)
        except Exception as error:  # noqa: BLE001
            return f"refuses: {type(error).__name__}: {' '.join(str(error).split())[:110]}"
        if not case.error and not same(values, child.expected()):
            return f"WRONG values at {path!r}"
        if not case.error and attributes is not None and not same_json(attributes, child.attributes):
            return f"WRONG attributes at {path!r}"
    return "ok"


def main(golden: Path) -> int:
    """Check all stores with the first peer found."""
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(1000)
    try:
        import zarr

        read, formats = read_zarr, (2,) if zarr.__version__.startswith("2") else (2, 3)
        if formats != (2,):
            zarr.config.set({"array.rectilinear_chunks": True})
    except ImportError:
        read, formats = read_tensorstore, (2, 3)
    seen: Counter[str] = Counter()
    for zarr_format in formats:
        for store in sorted((golden / f"zarr_v{zarr_format}").glob("*/*.z*")):
            case = CASES[store.stem]
            if case.name in ("bad-json-deep", "rectilinear-huge-run"):  # these bring peers down
                continue
            result = check(read, store, case, zarr_format)
            seen[f"{'invalid' if case.error else 'valid'}: {result.split()[0]}"] += 1
            if (result == "ok") == bool(case.error):
                print(f"{zarr_format} {store.parent.name}/{store.name}: {result}")
    print(dict(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)))
