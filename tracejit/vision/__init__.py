"""Images: transforms of arrays and tensors, datasets of images, and networks that classify them.

An image is a NumPy array H x W or H x W x C, as cameras and files give it, or a tensor [..., C, H, W], as networks take it.
PIL's images are taken wherever arrays are; nothing here needs PIL.

Must not know: the compiler.
Start reading: datasets.py, transforms/functional.py, models/resnet.py.
"""

from tracejit.vision import datasets, models, transforms, utils

__all__ = ["datasets", "models", "transforms", "utils"]
