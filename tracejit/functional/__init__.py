"""Functions of neural networks under PyTorch's names: pure compositions of operations.

They are library code that runs natively under a recording: functions of tensors and Python scalars that never branch on the
contents of a tensor.  Exported as tracejit.nn.functional.
"""

from tracejit.core.missing import missing_names
from tracejit.functional import activation, convolution, layer, loss, normalisation, padding, regularisation, resizing
from tracejit.functional.activation import *  # noqa: F403
from tracejit.functional.convolution import *  # noqa: F403
from tracejit.functional.layer import *  # noqa: F403
from tracejit.functional.loss import *  # noqa: F403
from tracejit.functional.normalisation import *  # noqa: F403
from tracejit.functional.padding import *  # noqa: F403
from tracejit.functional.regularisation import *  # noqa: F403
from tracejit.functional.resizing import *  # noqa: F403

__all__ = [
    *activation.__all__, *convolution.__all__, *layer.__all__, *loss.__all__, *normalisation.__all__, *padding.__all__,
    *regularisation.__all__, *resizing.__all__,
]  # fmt: skip

__getattr__ = missing_names(__name__)
