"""Code lines and files of each room: figures that only shrink."""

from pathlib import Path

from support.code_lines import code_lines

PACKAGE = Path(__file__).parents[2] / "src" / "chunkmill"

MOST = {  # room: (code lines, files that hold code)
    "array": (1428, 9),
    "checks": (1012, 4),
    "cli": (800, 4),
    "codecs": (2302, 17),
    "conversion": (3344, 18),
    "dask_arrays": (1888, 13),
    "display": (320, 2),
    "face": (488, 5),
    "formats": (3093, 17),
    "jobs": (917, 7),
    "journal": (946, 6),
    "model": (2055, 9),
    "nodes": (2845, 11),
    "pyramids": (1182, 7),
    "references": (847, 4),
    "runtime": (1541, 10),
    "scans": (1382, 7),
    "stores": (4399, 19),
    "transforms": (1043, 5),
    "xarray": (1676, 8),
    "zarr_python": (268, 2),
}
"""A room that has become smaller gets its new figures here; none is ever raised."""


def counted():
    rooms = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "face"
        n_lines, n_files = rooms.get(room, (0, 0))
        own = code_lines(path.read_text("utf-8"))
        rooms[room] = n_lines + own, n_files + (own > 0)
    return rooms


def test_no_room_grows():
    rooms = counted()
    assert len(rooms) > 15
    over = {
        room: (now, MOST.get(room, (0, 0)))
        for room, now in rooms.items()
        if any(map(int.__gt__, now, MOST.get(room, (0, 0))))
    }
    assert not over, "code lines and files now, and at most"
