"""Sets are joined by their references alone."""

import json

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import MetadataError
from chunkmill.references.files import SetFile, matching_urls


@pytest.fixture
def sets(tmp_path):
    urls = []
    for day in range(3):
        cm.create_array(
            tmp_path / f"{day}", "t", shape=(4, 2), dtype="i4", chunks=(2, 2), dimension_names=["time", "x"]
        )[...] = day
        urls.append(tmp_path / f"{day}.json")
        cm.to_references(tmp_path / f"{day}", urls[-1], progress=False)
    return urls


def test_nodes_serve_as_sets_and_a_target_is_written(sets, tmp_path):
    nodes = [cm.open_group(url) for url in sets]
    joined = cm.concat_references(nodes, dim="time", target=tmp_path / "all.json")
    assert joined.store.url.endswith("all.json")
    np.testing.assert_array_equal(cm.open_array(tmp_path / "all.json", "t")[::4, 1], [0, 1, 2])


@cases("write", [cm.concat_references, lambda sets, **options: cm.to_references(sets[0], **options)])
@cases(("own", "used"), [({}, {"anon": True}), ({"target_storage_options": {}}, {})])
def test_the_target_has_the_options_of_the_source_or_its_own(sets, monkeypatch, write, own, used):
    seen = []
    monkeypatch.setattr(SetFile, "at", lambda _, options, **__: seen.append(options) or 1 / 0)
    dim = {"dim": "time"} if write is cm.concat_references else {}
    with pytest.raises(ZeroDivisionError):
        write(sets, target="all.json", storage_options={"anon": True}, **dim, **own)
    assert seen == [used]


def test_without_a_target_the_set_is_in_memory(sets):
    joined = cm.concat_references(sets, dim="time")
    np.testing.assert_array_equal(joined["t"][:, 0], np.repeat([0, 1, 2], 4))
    assert joined.store.url.endswith("/0.json+2")
    assert cm.concat_references(sets[:1], dim="time")["t"].shape == (4, 2)


def test_what_does_not_fit_is_refused_before_anything_is_written(sets, tmp_path):
    with pytest.raises(MetadataError, match="'z'"):
        cm.concat_references(sets, dim="z", target=tmp_path / "all.json")
    assert not (tmp_path / "all.json").exists()


def test_what_is_no_set(tmp_path):
    array = cm.create_array(tmp_path / "x", "t", shape=(4,), dtype="i4", chunks=(2,))
    with pytest.raises(TypeError, match="expected the url of a reference set"):
        cm.concat_references([array], dim="time")
    with pytest.raises(ValueError, match="names a node: give the url of the reference set"):
        cm.concat_references([f"{tmp_path}/a.json|zarr2:t"], dim="time")


def test_sets_in_memory_keep_urls_that_no_base_resolves(sets):
    document = json.loads(sets[1].read_text())
    document["refs"] = {k: ["here.bin"] if k[2:] in {"0.0", "1.0"} else ref for k, ref in document["refs"].items()}
    with pytest.warns(UserWarning, match="say to what by base="):
        joined = cm.concat_references([document, document], dim="time")
    assert joined["t"].shape == (8, 2)
    assert joined.store.innermost.references.locate("t/3.0").url == "here.bin"


@pytest.mark.parametrize("pattern", ["*.json", "?.json", "[0-2].json"])
def test_a_pattern_is_expanded_in_the_order_of_names(sets, tmp_path, pattern):
    joined = cm.concat_references(f"{tmp_path}/{pattern}", dim="time", target=tmp_path / "out" / "all.json")
    np.testing.assert_array_equal(joined["t"][:, 0], np.repeat([0, 1, 2], 4))


def test_a_query_of_a_web_address_is_no_wildcard():
    assert matching_urls("https://host/set.json?key=1", {}) is None


def test_a_file_may_have_the_name_of_a_pattern(tmp_path):
    (tmp_path / "[0].json").touch()
    assert matching_urls(f"{tmp_path}/[0].json", {}) == [f"{tmp_path}/[0].json"]
    assert matching_urls(f"{tmp_path}/[1].json", {}) == []


def test_a_text_that_is_not_a_pattern_is_refused(tmp_path):
    with pytest.raises(TypeError, match="expected a list of reference sets, or a pattern"):
        cm.concat_references("tos.json", dim="time")
    with pytest.raises(ValueError, match="no reference set matches"):
        cm.concat_references(str(tmp_path / "tos_*.json"), dim="time")
    with pytest.raises(ValueError, match="at least one"):
        cm.concat_references([], dim="time")
