"""The notebooks: stripped, short, and they run, each in an empty folder."""

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
README = Path(__file__).parents[2] / "README.md"

# jupyter's own: of its settings, sockets and event loops
pytestmark = pytest.mark.filterwarnings("default")


def read(path):
    return nbformat.read(path, as_version=4)


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} == {
        "n5_to_ome_zarr",
        "partial_writes",
        "read_any_format",
        "rechunk_and_convert",
        "virtual_netcdf_to_zarr",
        "xarray_on_a_cluster",
    }


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_is_valid_short_and_stripped(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert len(notebook.cells) <= 40
    assert re.match("# .+\n", notebook.cells[0].source)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs, "strip the outputs: jupyter nbconvert --clear-output --inplace"
            assert cell.execution_count is None
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_is_formatted_and_names_no_place(path):
    code = [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    assert not [line for source in code for line in source.splitlines() if len(line) > 120]
    assert not re.search(r"[\"'](/|~|[A-Z]:\\)", "\n".join(code))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs(path, tmp_path):
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("iris_sample_data")
    pytest.importorskip("nilearn")
    notebook = read(path)
    if any("import SingleHdf5ToZarr" in cell.source for cell in notebook.cells):
        pytest.importorskip("kerchunk.hdf", exc_type=ImportError)
    nbclient.NotebookClient(notebook, timeout=180, resources={"metadata": {"path": str(tmp_path)}}).execute()
    complaints = [
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "stream" and output.name == "stderr"
    ]
    assert not complaints
