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
from tracejit.vision import datasets, download, models, transforms
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
    lambda x: F.resize(x, 10, "nearest"), lambda x: F.resize(x, 4, max_size=5), lambda x: F.resize(x, (8, 9), 3), F.invert,
    lambda x: F.rotate(x, 30), lambda x: F.rotate(x, 30, "bilinear", expand=True, fill=9), lambda x: F.adjust_brightness(x, 1.5),
    lambda x: F.affine(x, 10, (1, -1), 1.2, (5, 3)), lambda x: F.adjust_contrast(x, 0.5), lambda x: F.adjust_gamma(x, 2.0),
    lambda x: F.adjust_saturation(x, 0.3), lambda x: F.adjust_hue(x, 0.2), lambda x: F.gaussian_blur(x, 3),
]  # fmt: skip


@pytest.mark.parametrize("function", GEOMETRIC)
def test_arrays_and_tensors_are_changed_alike(function: Any) -> None:
    array = image()
    on_array, on_tensor = function(array), function(tracejit.tensor(channels_first(array).copy()))
    assert on_array.dtype == np.uint8
    difference = np.abs(channels_first(on_array).astype(int) - on_tensor.numpy().astype(int))
    assert difference.max() <= 1  # rounding in float32 and in float64
    of_one = function(array[..., 0])
    assert of_one.shape == on_array.shape[:2] and of_one.dtype == np.uint8


@pytest.mark.parametrize("size", [(3, 4), (11, 9), (5, 20)])
def test_resizing_agrees_with_torch(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(1).random((2, 3, 8, 10))
    for antialias in (True, False):
        expected = torch.nn.functional.interpolate(torch.tensor(x), size, mode="bilinear", antialias=antialias)
        np.testing.assert_allclose(F.resize(tracejit.tensor(x), size, antialias=antialias).numpy(), expected.numpy(), atol=1e-6)
        expected = torch.nn.functional.interpolate(torch.tensor(x), size, mode="bicubic", antialias=antialias)
        found = F.resize(tracejit.tensor(x), size, transforms.InterpolationMode.BICUBIC, antialias=antialias)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-6)
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


def test_images_are_turned_and_moved() -> None:
    x = tracejit.tensor(channels_first(image(6, 6)).copy()).float() / 255
    for quarter in range(4):
        np.testing.assert_array_equal(F.rotate(x, 90 * quarter).numpy(), np.rot90(x.numpy(), quarter, (1, 2)))
        np.testing.assert_allclose(F.rotate(x, 90 * quarter, "bilinear").numpy(), np.rot90(x.numpy(), quarter, (1, 2)), atol=1e-5)
    moved = F.affine(x, 0, [2, -1], 1.0, 0)  # two to the right, one up
    np.testing.assert_array_equal(moved[:, :-1, 2:].numpy(), x[:, 1:, :-2].numpy())
    assert moved[:, -1].abs().sum() == 0 and (F.affine(x, 0, [2, 0], 1.0, 0, fill=0.5)[..., :2] == 0.5).all()
    assert F.rotate(x, 45, expand=True).shape == (3, 10, 10)
    twice = F.affine(x, 0, [0, 0], 2.0, 0)
    np.testing.assert_array_equal(twice[:, 2:4, 2:4].numpy(), x[:, 2:4, 2:4].numpy())
    with pytest.raises(ValueError, match="interpolation must be"):
        F.rotate(x, 1, "hamming")


def test_colours_are_changed_within_their_bounds() -> None:
    red = tracejit.tensor([1.0, 0.0, 0.0]).reshape(3, 1, 1)
    for factor, colour in ((1 / 3, [0, 1, 0]), (-1 / 3, [0, 0, 1]), (0.5, [0, 1, 1])):
        np.testing.assert_allclose(F.adjust_hue(red, factor).flatten().numpy(), colour, atol=1e-6)
    x = tracejit.tensor(channels_first(image()).copy()).float() / 255
    for same in (F.adjust_hue(x, 0.0), F.adjust_brightness(x, 1), F.adjust_contrast(x, 1), F.adjust_saturation(x, 1)):
        np.testing.assert_allclose(same.numpy(), x.numpy(), atol=1e-6)
    assert F.adjust_brightness(x, 0).abs().sum() == 0
    gray = F.rgb_to_grayscale(x)
    np.testing.assert_allclose(F.adjust_saturation(x, 0.0).numpy(), np.repeat(gray.numpy(), 3, 0), atol=1e-6)
    assert F.adjust_contrast(x, 0.0).std() < 1e-6
    bright = F.adjust_brightness(image(), 100.0)
    assert bright.max() == 255
    np.testing.assert_allclose(F.gaussian_blur(tracejit.ones(3, 5, 5), (3, 5), 1.0).numpy(), np.ones((3, 5, 5)), atol=1e-6)


def test_random_changes_of_colours_and_positions_follow_the_seed() -> None:
    pipeline = transforms.Compose([
        transforms.ColorJitter(0.4, 0.4, 0.4, 0.1), transforms.RandomRotation(20), transforms.RandomAffine(5, (0.2, 0.2), (0.9, 1.1), 5),
        transforms.RandomGrayscale(0.3), transforms.RandomInvert(0.3),
        transforms.RandomChoice([transforms.GaussianBlur(3), transforms.Pad(0)]),
        transforms.RandomOrder([transforms.RandomHorizontalFlip(), transforms.RandomVerticalFlip()]), transforms.ToTensor(),
        transforms.RandomErasing(0.9),
    ])  # fmt: skip
    runs = []
    for _ in range(2):
        tracejit.manual_seed(4)
        runs.append([pipeline(image()).tolist() for _ in range(5)])
    assert runs[0] == runs[1]
    assert len({str(x) for x in runs[0]}) == 5
    for wrong in (
        lambda: transforms.ColorJitter(hue=0.6),
        lambda: transforms.ColorJitter(-1),
        lambda: transforms.RandomRotation(-1),
    ):
        with pytest.raises(ValueError):
            wrong()


def test_corners_and_the_middle_are_cut_out() -> None:
    array = image(6, 8)
    corners = transforms.FiveCrop(2)(array)
    assert [c.tolist() for c in corners[:4]] == [array[y : y + 2, x : x + 2].tolist() for y in (0, 4) for x in (0, 6)]
    assert corners[4].tolist() == array[2:4, 3:5].tolist()
    assert len(transforms.TenCrop(2)(array)) == 10
    erased = F.erase(tracejit.ones(3, 4, 4), 1, 2, 2, 2, 0.0)
    assert erased.sum() == 3 * 12 and (erased[:, 1:3, 2:] == 0).all()


# ---- networks -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "count"), [("resnet18", 11689512), ("resnet50", 25557032), ("resnext50_32x4d", 25028904)])
def test_networks_have_the_parameters_of_their_papers(name: str, count: int) -> None:
    model = getattr(models, name)()
    assert sum(p.numel() for p in model.parameters()) == count
    keys = list(model.state_dict())
    assert keys[0] == "conv1.weight" and keys[-1] == "fc.bias" and "layer2.0.downsample.1.running_mean" in keys


def test_a_residual_network_learns_compiled() -> None:
    tracejit.manual_seed(0)
    model = models.ResNet(models.resnet.BasicBlock, (1, 1, 1, 1), num_classes=2)
    optimizer = tracejit.optim.SGD(model.parameters(), lr=0.02)
    x, y = tracejit.randn(4, 3, 32, 32), tracejit.tensor([0, 1, 0, 1])

    @tracejit.compile
    def step() -> tracejit.Tensor:
        optimizer.zero_grad()
        loss = tracejit.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step().item() for _ in range(4)]
    assert losses[-1] < losses[0] and step.stats.compiled_calls >= 2


def test_stacks_of_convolutions_have_their_layers() -> None:
    features = models.vgg._features((1, 1, 2, 2, 2), True)
    assert features(tracejit.ones(1, 3, 32, 32)).shape == (1, 512, 1, 1)
    assert [type(layer).__name__ for layer in features[:4]] == ["Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"]
    with pytest.raises(RuntimeError, match="trained weights are not downloaded"):
        models.vgg16(pretrained=True)
    with pytest.raises(RuntimeError, match="trained weights are not downloaded"):
        models.alexnet("DEFAULT")


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
