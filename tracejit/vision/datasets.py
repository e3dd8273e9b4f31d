"""MNIST (LeCun, Cortes and Burges, http://yann.lecun.com/exdb/mnist/) and FashionMNIST (Xiao, Rasul and Vollgraf, 2017,
https://arxiv.org/abs/1708.07747), read from the idx files that they are published as.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tracejit.core import dtypes
from tracejit.data.dataset import Dataset
from tracejit.tensor import Tensor, from_numpy
from tracejit.vision.download import checksum_of, fetch

__all__ = ["MNIST", "FakeData", "FashionMNIST", "VisionDataset", "read_idx"]

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | Path) -> np.ndarray:
    """The array in an idx file, plain or compressed by gzip.  Raises ValueError for a file that is no idx file or is not
    whole."""
    opened: Any = gzip.open if str(path).endswith(".gz") else open
    try:
        with opened(path, "rb") as file:
            raw = file.read()
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: not a whole gzip file ({error}); delete it and download it again") from error
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _TYPES:
        raise ValueError(f"{path}: not an idx file: it begins with {raw[:4]!r}")
    kind, start = np.dtype(_TYPES[raw[2]]), 4 + 4 * raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    if len(raw) != start + math.prod(shape) * kind.itemsize:
        raise ValueError(
            f"{path}: an array of shape {shape} takes {math.prod(shape) * kind.itemsize} bytes, there are {len(raw) - start}"
        )
    return np.frombuffer(raw, kind, offset=start).reshape(shape).astype(kind.newbyteorder("="))


class VisionDataset(Dataset[Any]):
    """Base class: a dataset with transforms of its images and of its targets."""

    def __init__(
        self,
        root: str | Path,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.root = Path(root).expanduser()
        self.transform = transform
        self.target_transform = target_transform

    def __repr__(self) -> str:
        lines = [f"Number of datapoints: {len(self)}", f"Root location: {self.root}"]  # type: ignore[arg-type]
        if self.transform is not None:
            lines.append(f"Transform: {self.transform}")
        return "\n".join([f"Dataset {type(self).__name__}", *(f"    {line}" for line in lines)])


class MNIST(VisionDataset):
    """70,000 images of handwritten digits, 28 x 28: items are (array of uint8, number), after the transforms.

    `data` and `targets` are all of them as tensors.  Files are looked for in root/MNIST/raw; download=True gets those that are
    missing. Raises RuntimeError where there are none."""

    mirrors: ClassVar[list[str]] = ["https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"]
    resources: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    }
    classes: ClassVar[list[str]] = [
        "0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine",
    ]  # fmt: skip

    def __init__(
        self,
        root: str | Path,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform, target_transform)
        self.train = train
        if download:
            self.download()
        part = "train" if train else "t10k"
        images, labels = (self._file(f"{part}-{what}-ubyte") for what in ("images-idx3", "labels-idx1"))
        if images is None or labels is None:
            raise RuntimeError(f"Dataset not found in {self.raw_folder}. You can use download=True to download it")
        self._images, self._labels = read_idx(images), read_idx(labels).astype(dtypes.int64.numpy)
        if self._images.ndim != 3 or self._labels.shape != self._images.shape[:1]:
            raise ValueError(
                f"{type(self).__name__}: images of shape {list(self._images.shape)} and labels of shape {list(self._labels.shape)} "
                f"do not belong together; delete {self.raw_folder} and download it again"
            )

    @property
    def raw_folder(self) -> Path:
        """Where the files are."""
        return self.root / type(self).__name__ / "raw"

    @property
    def data(self) -> Tensor:
        """All images, uint8 [n, 28, 28]; others may be set in their place."""
        return from_numpy(self._images)

    @data.setter
    def data(self, images: Any) -> None:
        self._images = np.asarray(images)

    @property
    def targets(self) -> Tensor:
        """All labels, int64; others may be set in their place."""
        return from_numpy(self._labels)

    @targets.setter
    def targets(self, labels: Any) -> None:
        self._labels = np.asarray(labels)

    train_data = test_data = data  # older names
    train_labels = test_labels = targets

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class."""
        return {name: i for i, name in enumerate(self.classes)}

    def _file(self, name: str) -> Path | None:
        return next((path for path in (self.raw_folder / name, self.raw_folder / f"{name}.gz") if path.is_file()), None)

    def download(self) -> None:
        """Get the files that are missing, or whose checksum is wrong, from the first mirror that has them."""
        for name, checksum in self.resources.items():
            target = self.raw_folder / f"{name}.gz"
            if (self.raw_folder / name).is_file() or (target.is_file() and checksum_of(target) == checksum):
                continue
            fetch([f"{mirror}{name}.gz" for mirror in self.mirrors], target, checksum)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image: Any = self._images[index]
        target: Any = int(self._labels[index])
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        return len(self._labels)


class FashionMNIST(MNIST):
    """70,000 images of clothes in ten classes, 28 x 28; otherwise as MNIST."""

    mirrors: ClassVar[list[str]] = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    }
    classes: ClassVar[list[str]] = [
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ]


class FakeData(VisionDataset):
    """Random images and labels: each item is drawn from a stream of its own, so it is the same whenever it is asked for.

    image_size is (channels, height, width); an image is an array height x width x channels of uint8."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(".", transform, target_transform)
        self.size, self.image_size, self.num_classes, self.random_offset = size, tuple(image_size), num_classes, random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < self.size:
            raise IndexError(f"FakeData: index {index} is out of range for {self.size} items")
        draws = np.random.default_rng(self.random_offset + index)
        channels, height, width = self.image_size
        image: Any = draws.integers(0, 256, (height, width, channels), np.uint8)
        target: Any = int(draws.integers(0, self.num_classes))
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        return self.size
