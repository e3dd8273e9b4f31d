"""Transforms of images, and datasets in idx files."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tracejit
from tracejit import data
from tracejit.vision import datasets, download, transforms
from tracejit.vision import utils as pictures
from tracejit.vision.transforms import functional as F


def image(height: int = 5, width: int = 7, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def channels_first(array: np.ndarray) -> np.ndarray:
    return array.transpose(2, 0, 1)


def test_arrays_become_tensors() -> None:
    array = image()
    out = transforms.ToTensor()(array)
    assert out.dtype is tracejit.float32
    np.testing.assert_array_equal(out.numpy(), channels_first(array).astype(np.float32) / 255)
    assert transforms.ToTensor()(array[..., 0]).shape == (1, 5, 7)
    assert transforms.PILToTensor()(array).dtype is tracejit.uint8
    assert transforms.ToTensor()(array.astype(np.int32)).dtype is tracejit.int32
    np.testing.assert_array_equal(transforms.ToPILImage()(out), array)
    with pytest.raises(TypeError, match="expected an image"):
        transforms.ToTensor()(3.0)
    with pytest.raises(ValueError, match="2/3 dimensional"):
        transforms.ToTensor()(np.zeros((1, 2, 3, 4)))


def test_images_are_normalised() -> None:
    x = transforms.ToTensor()(image())
    out = transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.5))(x)
    np.testing.assert_allclose(out.numpy()[1], (x.numpy()[1] - 0.4) / 0.3, rtol=1e-5)
    assert transforms.Normalize((0.5,), (0.5,), inplace=True)(x) is x
    with pytest.raises(TypeError, match="should be Tensor"):
        transforms.Normalize((0.5,), (0.5,))(image())
    with pytest.raises(TypeError, match="float tensor"):
        transforms.Normalize((0.5,), (0.5,))(tracejit.ones(1, 2, 2, dtype=tracejit.int64))
    with pytest.raises(ValueError, match="division by zero"):
        transforms.Normalize((0.5,), (0.0,))(tracejit.ones(1, 2, 2))


GEOMETRIC: list[Any] = [
    F.hflip, F.vflip, lambda x: F.crop(x, 1, 2, 3, 4), lambda x: F.crop(x, -1, 5, 4, 6), lambda x: F.center_crop(x, 3),
    lambda x: F.center_crop(x, (9, 4)), lambda x: F.pad(x, 2, fill=7), lambda x: F.pad(x, [1, 2], padding_mode="reflect"),
    lambda x: F.pad(x, [1, 2, 3, 0], padding_mode="edge"), lambda x: F.pad(x, 2, padding_mode="symmetric"), lambda x: F.resize(x, (3, 9)),
    lambda x: F.resize(x, 10, "nearest"), lambda x: F.resize(x, 4, max_size=5),
]  # fmt: skip


@pytest.mark.parametrize("function", GEOMETRIC)
def test_arrays_and_tensors_are_changed_alike(function: Any) -> None:
    array = image()
    on_array, on_tensor = function(array), function(tracejit.tensor(channels_first(array).copy()))
    assert on_array.dtype == np.uint8
    difference = np.abs(channels_first(on_array).astype(int) - on_tensor.numpy().astype(int))
    assert difference.max() <= 1  # rounding in float32 and in float64
    np.testing.assert_array_equal(function(array[..., 0]), on_array[..., 0])


@pytest.mark.parametrize("size", [(3, 4), (11, 9), (5, 20)])
def test_resizing_agrees_with_torch(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(1).random((2, 3, 8, 10))
    for antialias in (True, False):
        expected = torch.nn.functional.interpolate(torch.tensor(x), size, mode="bilinear", antialias=antialias)
        np.testing.assert_allclose(F.resize(tracejit.tensor(x), size, antialias=antialias).numpy(), expected.numpy(), atol=1e-6)
    expected = torch.nn.functional.interpolate(torch.tensor(x), size, mode="nearest")
    np.testing.assert_array_equal(F.resize(tracejit.tensor(x), size, "nearest").numpy(), expected.numpy())


def test_random_transforms_follow_the_seed() -> None:
    pipeline = transforms.Compose([
        transforms.RandomCrop(4, padding=1), transforms.RandomHorizontalFlip(), transforms.RandomVerticalFlip(p=0.3),
        transforms.RandomApply([transforms.Lambda(lambda x: x + 1)]), transforms.ToTensor(),
    ])  # fmt: skip
    runs = []
    for _ in range(2):
        tracejit.manual_seed(4)
        runs.append([pipeline(image()).tolist() for _ in range(8)])
    assert runs[0] == runs[1]
    assert len({str(x) for x in runs[0]}) == 8
    assert transforms.RandomResizedCrop(6)(image()).shape == (6, 6, 3)
    assert transforms.RandomHorizontalFlip(p=1.0)(image()).tolist() == image()[:, ::-1].tolist()
    with pytest.raises(ValueError, match="larger than input image size"):
        transforms.RandomCrop(9)(image())
    assert transforms.RandomCrop(9, pad_if_needed=True)(image()).shape == (9, 9, 3)


def test_transforms_print_as_they_are_made() -> None:
    text = repr(transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.5,)), transforms.CenterCrop(3)]))
    assert text == "Compose(\n    ToTensor()\n    Normalize(mean=(0.5,), std=(0.5,))\n    CenterCrop(size=(3, 3))\n)"


def test_gray_and_other_dtypes() -> None:
    array = image()
    gray = transforms.Grayscale()(array)
    assert gray.shape == (5, 7)
    on_tensor = transforms.Grayscale(3)(tracejit.tensor(channels_first(array).copy()))
    np.testing.assert_allclose(on_tensor.numpy()[2], gray, atol=1)
    x = transforms.ConvertImageDtype(tracejit.float32)(tracejit.tensor(array))
    assert x.max().item() <= 1.0
    np.testing.assert_array_equal(transforms.ConvertImageDtype(tracejit.uint8)(x).numpy(), array)


# ---- idx files ------------------------------------------------------------------------------------------------------
def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(count)
    return generator.integers(0, 256, (count, 28, 28), dtype=np.uint8), generator.integers(0, 10, count, dtype=np.uint8)


def files() -> dict[str, bytes]:
    out = {}
    for part, count in (("train", 12), ("t10k", 5)):
        images, labels = digits(count)
        out[f"{part}-images-idx3-ubyte.gz"] = gzip.compress(idx(images), mtime=0)
        out[f"{part}-labels-idx1-ubyte.gz"] = gzip.compress(idx(labels), mtime=0)
    return out


def store(root: Path, name: str = "MNIST") -> Path:
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    for name, content in files().items():
        (raw / name).write_bytes(content)
    return raw


def test_mnist_is_read_from_idx_files(tmp_path: Path) -> None:
    store(tmp_path)
    train = datasets.MNIST(tmp_path, transform=transforms.ToTensor(), target_transform=str)
    images, labels = digits(12)
    assert len(train) == 12
    assert train.data.shape == (12, 28, 28)
    assert train.targets.tolist() == labels.tolist()
    x, y = train[3]
    np.testing.assert_array_equal(x.numpy()[0], images[3].astype(np.float32) / 255)
    assert y == str(labels[3])
    test = datasets.MNIST(tmp_path, train=False)
    assert (len(test), test[0][0].dtype, type(test[0][1])) == (5, np.uint8, int)
    assert repr(train).startswith("Dataset MNIST\n    Number of datapoints: 12\n")
    batch = next(iter(data.DataLoader(datasets.MNIST(tmp_path, transform=transforms.ToTensor()), 6)))
    assert (batch[0].shape, batch[1].dtype) == ((6, 1, 28, 28), tracejit.int64)
    with pytest.raises(RuntimeError, match="download=True"):
        datasets.FashionMNIST(tmp_path)


def test_broken_idx_files_are_errors(tmp_path: Path) -> None:
    raw = store(tmp_path)
    whole = files()["train-images-idx3-ubyte.gz"]
    (raw / "train-images-idx3-ubyte.gz").write_bytes(whole[:-200])
    with pytest.raises(ValueError, match="not a whole gzip file"):
        datasets.MNIST(tmp_path)
    (raw / "train-images-idx3-ubyte.gz").unlink()
    (raw / "train-images-idx3-ubyte").write_bytes(gzip.decompress(whole)[:-1])
    with pytest.raises(ValueError, match="takes 9408 bytes, there are 9407"):
        datasets.MNIST(tmp_path)
    (raw / "train-images-idx3-ubyte").write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match="not an idx file"):
        datasets.MNIST(tmp_path)
    (raw / "train-images-idx3-ubyte").write_bytes(idx(digits(11)[0]))
    with pytest.raises(ValueError, match="do not belong together"):
        datasets.MNIST(tmp_path)


class Server(http.server.BaseHTTPRequestHandler):
    """Serves `files()`, in parts where asked; the first answer for a name in `broken` ends after half."""

    broken: ClassVar[set[str]] = set()
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        name, part = self.path.removeprefix("/"), self.headers.get("Range")
        self.asked.append((name, part))
        content = files().get(name)
        if content is None:
            self.send_error(404)
            return
        start = int(part.removeprefix("bytes=").rstrip("-")) if part else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if part else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        if name in self.broken:
            self.broken.discard(name)
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Server.asked.clear()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def mnist_at(*mirrors: str) -> type[datasets.MNIST]:
    class MNIST(datasets.MNIST):
        resources: ClassVar[dict[str, str]] = {
            name.removesuffix(".gz"): hashlib.md5(content).hexdigest() for name, content in files().items()
        }

    MNIST.mirrors = list(mirrors)
    return MNIST


def test_missing_files_are_downloaded_once(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = mnist_at(address + "nowhere/", address)
    assert len(kind(tmp_path, download=True)) == 12
    assert "100%" in capsys.readouterr().err
    count = len(Server.asked)
    assert len(kind(tmp_path, train=False, download=True)) == 5
    assert len(Server.asked) == count
    assert sorted(path.name for path in (tmp_path / "MNIST" / "raw").iterdir()) == sorted(files())


def test_a_broken_download_is_resumed(address: str, tmp_path: Path) -> None:
    name = "train-images-idx3-ubyte.gz"
    Server.broken.add(name)
    with pytest.raises(RuntimeError, match=r"the connection ended after \d+ of \d+ bytes|IncompleteRead"):
        mnist_at(address)(tmp_path, download=True)
    raw = tmp_path / "MNIST" / "raw"
    assert [path.name for path in raw.iterdir()] == [f"{name}.part"]
    have = (raw / f"{name}.part").stat().st_size
    assert 0 < have < len(files()[name])
    assert len(mnist_at(address)(tmp_path, download=True)) == 12
    assert (name, f"bytes={have}-") in Server.asked


def test_a_wrong_checksum_leaves_nothing(address: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the checksum is"):
        download.fetch([address + "t10k-labels-idx1-ubyte.gz"], tmp_path / "a.gz", "0" * 32)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="404"):
        download.fetch([address + "none.gz"], tmp_path / "a.gz", "0" * 32)


def test_pictures_of_many_images(tmp_path: Path) -> None:
    grid = pictures.make_grid(tracejit.ones(5, 1, 4, 3), nrow=3, padding=1, pad_value=0.5)
    assert grid.shape == (3, 11, 13)
    assert grid[0, 0, 0].item() == 0.5
    assert grid[2, 1, 1].item() == 1.0
    pictures.save_image(tracejit.rand(4, 3, 8, 8), tmp_path / "a.png", nrow=2)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
