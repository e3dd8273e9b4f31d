"""Weights from a URL: fetched once, as a whole, for everybody whom the umask lets read them; objects only where they are asked for."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

import tracejit
from tracejit import hub, nn


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of files to fetch from."""
    folder = tmp_path / "source"
    folder.mkdir()
    tracejit.save({"w": tracejit.arange(3)}, folder / "weights.pth")
    tracejit.save(nn.Linear(2, 1), folder / "module.pth")
    return folder


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_files_have_the_permissions_that_the_umask_leaves(source: Path, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        hub.load_state_dict_from_url((source / "weights.pth").as_uri(), tmp_path / "kept")
        tracejit.save({"w": tracejit.ones(1)}, tmp_path / "saved")
    finally:
        os.umask(before)
    for file in (tmp_path / "kept" / "weights.pth", tmp_path / "saved"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask


def test_a_file_is_fetched_once(source: Path, tmp_path: Path) -> None:
    url = (source / "weights.pth").as_uri()
    assert hub.load_state_dict_from_url(url, tmp_path / "kept")["w"].tolist() == [0, 1, 2]
    (source / "weights.pth").unlink()
    assert hub.load_state_dict_from_url(url, tmp_path / "kept")["w"].tolist() == [0, 1, 2]


def test_objects_are_made_only_for_weights_only_false(source: Path, tmp_path: Path) -> None:
    url = (source / "module.pth").as_uri()
    for options in ({}, {"weights_only": True}):
        with pytest.raises(Exception, match="weights_only=False"):
            hub.load_state_dict_from_url(url, tmp_path / "kept", **options)
    layer = hub.load_state_dict_from_url(url, tmp_path / "kept", weights_only=False)
    assert isinstance(layer, nn.Linear) and layer.weight.shape == (1, 2)


def test_nothing_is_left_of_a_file_with_another_hash(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "weights.pth"
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.download_url_to_file((source / "weights.pth").as_uri(), target, "00000000")
    with pytest.raises(OSError):
        hub.download_url_to_file((source / "missing.pth").as_uri(), target)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]
    right = hashlib.sha256((source / "weights.pth").read_bytes()).hexdigest()[:8]
    hub.download_url_to_file((source / "weights.pth").as_uri(), target, right)
    assert target.read_bytes() == (source / "weights.pth").read_bytes()
