"""Saving and loading: round trips, other writers' files, and files that are broken or hostile."""

from __future__ import annotations

import argparse
import datetime
import io
import json
import os
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from against_torch import numbers

import tracejit
from tracejit import nn, optim, serialization
from tracejit.serialization import FileFormatError, load, save, structure


def same(a: Any, b: Any) -> None:
    """Equal, with the same types throughout."""
    assert type(a) is type(b)
    if isinstance(a, tracejit.Tensor):
        assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert a == b or (a != a and b != b)


def checkpoint() -> dict[str, Any]:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    (model(tracejit.rand(6, 3)) ** 2).sum().backward()
    optimizer.step()
    schedule = optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
    return {
        "epoch": 3, "loss": 0.125, "best": float("inf"), "none": None, "flag": True, "name": "tést\n", "big": 1 << 80,
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
        "nested": [(1, tracejit.arange(4)), {"a": {2, 3}}, frozenset("x"), b"\0\xff", slice], "size": tracejit.ones(2, 3).shape,
        (1, "two"): tracejit.float64, 7: np.arange(6.0).reshape(2, 3)[:, ::-1],
        "scalars": [np.float32(0.1), np.int64(3), np.bool_(True)],
        "empty": tracejit.empty(0, 3), "zero_d": tracejit.tensor(2.5), "ordered": OrderedDict(b=1, a=2),
        "counter": Counter("aab"),
        "rates": [float("nan"), -0.0], "leaf": tracejit.ones(2, requires_grad=True), "parameter": nn.Parameter(tracejit.ones(2)),
    }  # fmt: skip


def whole() -> dict[str, Any]:
    value = checkpoint()
    value["nested"].pop()  # a class
    return value


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    value = whole()
    save(value, tmp_path / "c.pt")
    same(load(tmp_path / "c.pt"), value)
    buffer = io.BytesIO()
    save(value, buffer)
    buffer.seek(0)
    same(load(buffer, map_location="cpu", weights_only=False), value)


def test_training_goes_on_from_a_file(tmp_path: Path) -> None:
    tracejit.manual_seed(0)

    def make() -> tuple[Any, Any]:
        model = nn.Linear(3, 2)
        return model, optim.Adam(model.parameters(), lr=0.1)

    def train(model: Any, optimizer: Any, first: int, last: int) -> None:
        for i in range(first, last):
            optimizer.zero_grad()
            (model(tracejit.tensor(numbers(4, 3, seed=i, dtype="float32"))) ** 2).sum().backward()
            optimizer.step()

    model, optimizer = make()
    train(model, optimizer, 0, 3)
    save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    train(model, optimizer, 3, 6)
    other, resumed = make()
    state = load(tmp_path / "c.pt")
    other.load_state_dict(state["model"])
    resumed.load_state_dict(state["optimizer"])
    train(other, resumed, 3, 6)
    assert other.weight.tolist() == model.weight.tolist()


def test_tied_tensors_share_memory_again(tmp_path: Path) -> None:
    weight = tracejit.ones(2, 2)
    save({"a": weight, "b": weight.detach(), "c": weight.T, "d": weight.clone()}, tmp_path / "t.pt")
    found = load(tmp_path / "t.pt")
    found["a"].fill_(5.0)
    assert found["b"].tolist() == [[5.0, 5.0], [5.0, 5.0]]
    assert found["d"].tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("value", [
    lambda x: x, {"a": [lambda: 1]}, {"f": (i for i in range(3))}, [(i for i in ())], {"x": np.array(["text"])}, {"x": np.array([None])},
])  # fmt: skip
def test_what_files_do_not_hold_is_refused_and_nothing_is_written(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    save({"before": 1}, path)
    before = path.read_bytes()
    with pytest.raises(TypeError, match=r"save\(\): cannot save a .* \(at "):
        save(value, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.pt"]


class Net(nn.Module):
    """With weights that are tied, a function, and settings of a program's own class."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.layers = nn.ModuleList([self.first, nn.BatchNorm1d(2), self.second])
        self.activation = nn.functional.relu
        self.settings = argparse.Namespace(name="net", sizes=[1, 2])
        self.itself = [self.settings]

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


def test_modules_and_objects_come_back_where_they_are_asked_for(tmp_path: Path) -> None:
    model, path = Net(), tmp_path / "model.pt"
    model.eval()
    save({"model": model, "args": model.settings, "when": datetime.date(2020, 1, 2), "type": Net, "range": range(3)}, path)
    with pytest.raises(FileFormatError, match=r"holds a .*Net.*weights_only=False"):
        load(path)
    found = load(path, weights_only=False)
    other = found["model"]
    x = tracejit.tensor(numbers(3, 2, dtype="float32"))
    assert type(other) is Net and not other.training and other(x).tolist() == model(x).tolist()
    assert other.second.weight is other.first.weight and other.layers[0] is other.first and len(list(other.parameters())) == 5
    assert other.itself[0] is other.settings is found["args"] and other.settings == model.settings
    assert found["when"] == datetime.date(2020, 1, 2) and found["type"] is Net and found["range"] == range(3)
    other(x).sum().backward()
    assert other.first.weight.grad is not None and other.activation is nn.functional.relu


def test_single_classes_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "settings.pt"
    save(argparse.Namespace(rate=0.1, when=datetime.date(2020, 1, 2)), path)
    with serialization.safe_globals([argparse.Namespace]), pytest.raises(FileFormatError, match=r"holds a datetime\.date"):
        load(path)
    with serialization.safe_globals([argparse.Namespace, (datetime.date, "datetime.date")]):
        assert load(path) == argparse.Namespace(rate=0.1, when=datetime.date(2020, 1, 2))
        assert serialization.get_safe_globals() == [argparse.Namespace, datetime.date]
    with pytest.raises(FileFormatError, match=r"holds a argparse\.Namespace"):
        load(path)
    serialization.add_safe_globals([argparse.Namespace])
    serialization.clear_safe_globals()
    assert serialization.get_safe_globals() == []


def test_files_that_name_what_is_not_there_are_errors() -> None:
    for tree in ('{"name":"nowhere:Net"}', '{"name":"os"}', '{"object":[0]}', '{"same":3}', '{"name":"tests:nothing"}'):
        with pytest.raises(FileFormatError):
            structure.from_structure({}, tree, True)
    with pytest.raises(FileFormatError, match="weights_only=False"):
        structure.from_structure({}, '{"object":[0,{"name":"os:system"},["false"],null,[],[]]}')


def test_a_container_within_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="within itself"):
        save(loop, io.BytesIO())


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.pt"
    save({"x": tracejit.ones(2)}, path)
    os.chmod(path, 0o640)

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            save({"x": tracejit.zeros(2)}, path)
    assert load(path)["x"].tolist() == [1.0, 1.0]
    assert [p.name for p in tmp_path.iterdir()] == ["c.pt"]
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    save({"x": tracejit.zeros(3)}, link)
    assert link.is_symlink()
    assert load(path)["x"].tolist() == [0.0, 0.0, 0.0]
    assert path.stat().st_mode & 0o777 == 0o640


# ---- safetensors ----------------------------------------------------------------------------------------------------
def test_a_state_dict_is_a_plain_safetensors_file(tmp_path: Path) -> None:
    state = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).state_dict()
    save(state, tmp_path / "m.safetensors")
    plain = serialization.load_safetensors(tmp_path / "m.safetensors")
    assert set(plain) == set(state)
    reader = pytest.importorskip("safetensors.numpy")
    for name, array in reader.load_file(tmp_path / "m.safetensors").items():
        np.testing.assert_array_equal(array, state[name].numpy())


def test_safetensors_files_in_both_directions(tmp_path: Path) -> None:
    tensors = {"a": tracejit.rand(3, 4), "b.c": tracejit.arange(5), "d": tracejit.tensor(True), "e": tracejit.empty(2, 0)}
    tensors["f"] = tracejit.tensor([1, 2], dtype=tracejit.uint8)
    serialization.save_safetensors(tensors, tmp_path / "x.safetensors", metadata={"author": "me"})
    same(dict(sorted(serialization.load_safetensors(tmp_path / "x.safetensors").items())), dict(sorted(tensors.items())))
    same(dict(sorted(load(tmp_path / "x.safetensors").items())), dict(sorted(tensors.items())))
    with pytest.raises(TypeError, match="expected names and tensors"):
        serialization.save_safetensors({"a": 1}, tmp_path / "y")
    reference = pytest.importorskip("safetensors.numpy")
    reference.save_file({"w": np.ones((2, 2), np.float32)}, tmp_path / "r.safetensors")
    assert load(tmp_path / "r.safetensors")["w"].tolist() == [[1.0, 1.0], [1.0, 1.0]]


def safetensors_file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: Any = "F32", shape: Any = (1,), span: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape) if isinstance(shape, tuple) else shape, "data_offsets": list(span)}


STRUCTURE = {"format": "pt", "tracejit.structure": ""}
WRONG_SAFETENSORS = {
    "empty": b"", "short": b"\1\2\3", "header_too_long": safetensors_file({}, length=1 << 62),
    "no_json": safetensors_file(b"{nope"),
    "no_utf8": safetensors_file(b"\xff\xfe"), "list": safetensors_file([]), "deep": safetensors_file(b"[" * 100_000),
    "twice": safetensors_file(b"{" + b",".join([b'"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'] * 2) + b"}"),
    "dtype": safetensors_file({"a": entry("F7")}, b"1234"), "negative": safetensors_file({"a": entry(shape=(-1,))}, b"1234"),
    "wrong_size": safetensors_file({"a": entry(shape=(2,))}, b"1234"), "outside": safetensors_file({"a": entry(span=(4, 8))},
    b"1234"),
    "overlap": safetensors_file({"a": entry(), "b": entry()}, b"1234"), "gap": safetensors_file({"a": entry(span=(4, 8))},
    b"12345678"),
    "rest": safetensors_file({"a": entry()}, b"12345678"), "huge": safetensors_file({"a": entry(shape=(1 << 40, 1 << 40))},
    b"1234"),
    "float_shape": safetensors_file({"a": entry(shape=[1.0])}, b"1234"),
    "bool_shape": safetensors_file({"a": entry(shape=[True])}, b"1234"),
    "no_entry": safetensors_file({"a": 3}), "missing": safetensors_file({"a": {"dtype": "F32"}}),
    "bools": safetensors_file({"a": entry("BOOL", (4,))}, b"1234"),
    "metadata": safetensors_file({"__metadata__": {"a": 1}}), "backwards": safetensors_file({"a": entry(span=(4, 0))}, b"1234"),
    **{
        f"structure_{i}": safetensors_file({"__metadata__": {"tracejit.structure": text}, "a": entry()}, b"1234")
        for i, text in enumerate([
            "{", '{"tensor":["b",false]}', '{"tensor":"a"}', '{"module":1}', '{"dict":[[1]]}', '{"dict":[[[],1]]}', '{"a":1,"b":2}',
            '{"dtype":"object"}', '{"tuple":3}', '{"bytes":"!"}', '{"scalar":["float32"]}', "[" * 100_000, '{"Size":["x"]}',
            '{"float":"x"}', '{"set":[[]]}', '{"dtype":["a"]}',
        ])
    },
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_SAFETENSORS)
def test_wrong_safetensors_files_are_errors(name: str) -> None:
    with pytest.raises(FileFormatError, match=r"safetensors: |load\(\): "):
        load(io.BytesIO(WRONG_SAFETENSORS[name]))


def test_a_file_cut_off_anywhere_is_an_error() -> None:
    buffer = io.BytesIO()
    save(whole(), buffer)
    content = buffer.getvalue()
    for end in [*range(40), *range(40, len(content), 97), len(content) - 1]:
        with pytest.raises(FileFormatError):
            load(io.BytesIO(content[:end]))
    with pytest.raises(FileFormatError):
        load(io.BytesIO(content + b"\0"))


# ---- npz ------------------------------------------------------------------------------------------------------------
def test_npz_files_in_both_directions(tmp_path: Path) -> None:
    tensors = {"a.weight": tracejit.rand(3, 4), "b": tracejit.arange(5), "c": tracejit.tensor(2.0), "d": tracejit.ones(2, 3).T}
    serialization.save_npz(tensors, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as found:
        for name in tensors:
            np.testing.assert_array_equal(found[name], tensors[name].numpy())
    np.savez_compressed(tmp_path / "y.npz", w=np.asfortranarray(np.arange(6.0).reshape(2, 3)), v=np.array(3, ">i8"))
    assert load(tmp_path / "y.npz")["w"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert serialization.load_npz(tmp_path / "y.npz")["v"].item() == 3


def test_wrong_npz_files_are_errors(tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", a=np.array([{}], object))
    with pytest.raises(FileFormatError, match="dtype object"):
        load(tmp_path / "o.npz")
    np.savez(tmp_path / "s.npz", a=np.array(["x"]))
    with pytest.raises(FileFormatError, match="dtype <U1"):
        load(tmp_path / "s.npz")
    np.savez(tmp_path / "x.npz", a=np.arange(100.0))
    content = (tmp_path / "x.npz").read_bytes()
    for end in range(4, len(content), 50):
        with pytest.raises(FileFormatError):
            load(io.BytesIO(content[:end]))
    with zipfile.ZipFile(tmp_path / "z.npz", "w") as archive:
        out = io.BytesIO()
        np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
        archive.writestr("a.npy", out.getvalue())
    with pytest.raises(FileFormatError, match="takes 8796093022208 bytes"):
        load(tmp_path / "z.npz")


# ---- files of PyTorch -----------------------------------------------------------------------------------------------
def torch_checkpoint(torch: Any) -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters())
    (model(torch.rand(6, 3)) ** 2).sum().backward()
    optimizer.step()
    base = torch.arange(12.0)
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "loss": 0.5, "big": 1 << 70, "text": "tést",
        "nested": [(1, {"a": None, "b": True}), {2, 3}], "part": base[2:8], "across": base.reshape(3, 4).T,
        "expanded": torch.ones(1).expand(3),
        "ints": torch.arange(3, dtype=torch.int16), "bools": torch.tensor([True, False]),
        "bytes": torch.tensor([1, 255], dtype=torch.uint8),
        "double": torch.tensor(1.5, dtype=torch.float64), "empty": torch.empty(0, 2),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "size": torch.Size([2, 3]), "dtype": torch.float32, "counter": Counter("aab"), "best": np.float64(0.25),
        "count": np.int64(4),
        "leaf": torch.ones(2, requires_grad=True),
    }  # fmt: skip


def compare(ours: Any, theirs: Any, torch: Any) -> None:
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, tracejit.Tensor)
        assert str(theirs.dtype) == f"torch.{ours.dtype.name}"
        assert isinstance(ours, nn.Parameter) == isinstance(theirs, torch.nn.Parameter)
        assert ours.requires_grad == theirs.requires_grad
        np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            compare(ours[key], theirs[key], torch)
    elif isinstance(theirs, list | tuple) and not isinstance(theirs, torch.Size):
        assert type(ours) is type(theirs)
        for x, y in zip(ours, theirs, strict=True):
            compare(x, y, torch)
    elif isinstance(theirs, torch.dtype):
        assert f"torch.{ours.name}" == str(theirs)
    else:
        assert ours == theirs
        assert isinstance(ours, type(theirs)) or isinstance(theirs, torch.Size)


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch_are_read(zipped: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    value = torch_checkpoint(torch)
    torch.save(value, tmp_path / "c.pt", _use_new_zipfile_serialization=zipped)
    found = load(tmp_path / "c.pt")
    compare(found, value, torch)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model.load_state_dict(found["model"])
    optimizer = optim.Adam(model.parameters())
    optimizer.load_state_dict(found["optimizer"])
    assert optimizer.state[model[0].weight]["step"] == 1


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch_with_anything_else_are_refused_by_name(zipped: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for value, name in (
        (torch.nn.Linear(1, 1), r"torch\.nn\.modules\.linear\.Linear"), ({"a": [Path("x")]}, r"pathlib\.\w*Path"),
        ({"f": os.system}, r"posix\.system"), ({"a": np.arange(3)}, r"numpy\.\w+\.multiarray\._reconstruct"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "ComplexFloatStorage"),
    ):  # fmt: skip
        torch.save(value, tmp_path / "c.pt", _use_new_zipfile_serialization=zipped)
        with pytest.raises(FileFormatError, match=name):
            load(tmp_path / "c.pt")


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch_cut_off_anywhere_are_errors(zipped: bool) -> None:
    torch = pytest.importorskip("torch")
    buffer = io.BytesIO()
    torch.save({"a": torch.arange(40.0), "b": [1, "x"]}, buffer, _use_new_zipfile_serialization=zipped)
    content = buffer.getvalue()
    for end in [*range(1, 60), *range(60, len(content), 31)]:
        with pytest.raises(FileFormatError):
            load(io.BytesIO(content[:end]))


class Evil:
    """Unpickled, it would leave a mark."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def archive(pickled: bytes, storages: dict[str, bytes] | None = None, **options: Any) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **options) as file:
        file.writestr("archive/data.pkl", pickled)
        for key, content in (storages or {}).items():
            file.writestr(f"archive/data/{key}", content)
    out.seek(0)
    return out


def tensor_pickle(offset: int, size: tuple[int, ...], stride: tuple[int, ...], count: int = 4) -> bytes:
    """A pickle of a tensor in storage "0", written by hand."""

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def number(value: int) -> bytes:
        raw = value.to_bytes(9, "little", signed=True)
        return b"\x8a" + bytes([9]) + raw

    def items(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(count) + b"tQ"
    arguments = b"(" + storage + number(offset) + items(size) + items(stride) + b"\x89" + b"ccollections\nOrderedDict\n)R" + b"t"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R."


def test_a_tensor_must_lie_within_its_storage() -> None:
    data = {"0": np.arange(4, dtype=np.float32).tobytes()}
    assert load(archive(tensor_pickle(1, (3,), (1,)), data)).tolist() == [1.0, 2.0, 3.0]
    for offset, size, stride in (
        (2, (3,), (1,)), (0, (5,), (1,)), (-1, (2,), (1,)), (0, (2,), (-1,)), (0, (2, 2), (3, 3)), (0, (1 << 40,), (0,)),
        (1 << 62, (1,), (1,)), (0, (2, 2), (1,)), (0, (1 << 70, 1 << 70), (1, 1)),
    ):  # fmt: skip
        with pytest.raises(FileFormatError):
            load(archive(tensor_pickle(offset, size, stride), data))
    with pytest.raises(FileFormatError, match="takes 20 bytes, there are 16"):
        load(archive(tensor_pickle(0, (1,), (1,), count=5), data))
    with pytest.raises(FileFormatError, match="no storage '0'"):
        load(archive(tensor_pickle(0, (1,), (1,))))
    with pytest.raises(FileFormatError, match="compressed"):
        load(archive(tensor_pickle(0, (1,), (1,)), data, compression=zipfile.ZIP_DEFLATED))


def test_hostile_pickles_do_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for evil in (
        Evil(os.system, f"touch {mark}"),
        Evil(eval, f"open({str(mark)!r}, 'w')"),
        Evil(open, str(mark), "w"),
        Evil(getattr, "", "join"),
    ):
        for protocol in (2, 4):
            with pytest.raises(FileFormatError, match=r"refused|which no state_dict needs"):
                load(archive(pickle.dumps({"a": evil}, protocol)))
            with pytest.raises(FileFormatError, match="plain pickle"):
                load(io.BytesIO(pickle.dumps({"a": evil}, protocol)))
    assert not mark.exists()


def test_hostile_pickles_end_soon() -> None:
    nested = b"\x80\x02)" + b"".join(b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(100))
    hostile = [
        nested + b"}" + b"h\x50K\x01s.",  # a key whose hash takes for ever
        b"\x80\x02}h\x01" + b"K\x01s.", b"\x80\x02]r\xff\xff\xff\x7f.", b"\x80\x02(((((.", b"\x80\x02t.", b"\x80\x02K.",
        b"\x80\x09N.",
        b"\x80\x02]K\x01K\x02s.", b"\x80\x02K\x01K\x02a.", b"\x80\x02K\x01)R.", b"\x80\x02K\x01}b.", b"\x80\x02K\x01Q.",
        b"\x80\x02\x8b\xff\xff\xff\xff",
        b"\x80\x02X\xff\xff\xff\xffabc", b"\x80\x02cos\nsystem\n.", b"\x80\x02c" + b"a" * 5000,
        b"\x80\x02\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02i", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + nested[2:] + b"R.",
        b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"Q.", b"\x80\x02ctorch\nSize\n(X\x01\x00\x00\x00atR.",
    ]  # fmt: skip
    for content in hostile:
        try:
            load(archive(content))
        except FileFormatError:
            continue
        assert content == b"\x80\x02]r\xff\xff\xff\x7f.", content  # a large number in the memo is harmless


def test_state_dicts_go_to_torch_and_back(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ours = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
    serialization.save_npz(ours.state_dict(), tmp_path / "m.npz")
    theirs = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    with np.load(tmp_path / "m.npz") as file:
        theirs.load_state_dict({name: torch.tensor(file[name]) for name in file})
    x = numbers(3, 1, 4, 4, dtype="float32")
    np.testing.assert_allclose(
        ours(tracejit.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5
    )
    torch.save(theirs.state_dict(), tmp_path / "m.pth")
    ours.load_state_dict(tracejit.load(tmp_path / "m.pth"))
    np.testing.assert_array_equal(ours[1].running_mean.numpy(), theirs[1].running_mean.numpy())


def test_torch_reads_what_is_saved_in_its_format(tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    model = tracejit.nn.Sequential(tracejit.nn.Linear(2, 3), tracejit.nn.BatchNorm1d(3))
    optimizer = tracejit.optim.Adam(model.parameters(), lr=0.1)
    model(tracejit.randn(4, 2)).sum().backward()
    optimizer.step()
    whole = tracejit.arange(6.0).reshape(2, 3)
    saved = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "name": "run", "rate": 0.1, "none": None,
        "parts": [whole, whole[1], whole.t(), (tracejit.tensor(True), tracejit.tensor([1, 2], dtype=tracejit.int16))],
        "parameter": tracejit.nn.Parameter(tracejit.ones(2)), "half": tracejit.ones(2, dtype=tracejit.bfloat16),
        "empty": tracejit.zeros(0, 3), "dtype": tracejit.float32, "shape": whole.shape,
    }  # fmt: skip
    path = tmp_path / "checkpoint.pt"
    tracejit.save(saved, path, format="torch")
    read = torch.load(path, weights_only=True)
    again = tracejit.load(path)
    for key, value in saved["model"].items():
        assert read["model"][key].numpy().tolist() == value.numpy().tolist() == again["model"][key].numpy().tolist()
    same = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    same.load_state_dict(read["model"])
    there = torch.optim.Adam(same.parameters())
    there.load_state_dict(read["optimizer"])
    same(torch.randn(4, 2)).sum().backward()
    there.step()
    first, row, turned, (truth, small) = read["parts"]
    first[1, 0] = 9.0  # one storage
    assert row.tolist() == [9.0, 4.0, 5.0] and turned.stride() == (1, 3) and turned[0, 1] == 9.0
    assert truth.dtype is torch.bool and small.dtype is torch.int16 and small.tolist() == [1, 2]
    assert isinstance(read["parameter"], torch.nn.Parameter) and read["parameter"].requires_grad
    assert read["half"].dtype is torch.bfloat16 and read["half"].tolist() == [1.0, 1.0]
    assert read["empty"].shape == (0, 3) and read["dtype"] is torch.float32 and read["shape"] == torch.Size([2, 3])
    assert (read["epoch"], read["name"], read["rate"], read["none"]) == (3, "run", 0.1, None)


def test_what_torch_does_not_take_is_refused_with_its_place_and_writes_nothing(tmp_path: Any) -> None:
    path = tmp_path / "model.pt"
    with pytest.raises(TypeError, match=r"the object\['model'\]\[1\] is of type ReLU"):
        tracejit.save({"model": [1, tracejit.nn.ReLU()]}, path, format="torch")
    with pytest.raises(ValueError, match="'safetensors' or 'torch', got 'pickle'"):
        tracejit.save({}, path, format="pickle")
    assert not path.exists()
