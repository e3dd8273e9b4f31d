"""Functions of neural networks under PyTorch's names: pure compositions of operations.

They are library code that runs natively under a recording: functions of tensors and Python scalars that never branch on the
contents of a tensor.  Exported as tracejit.nn.functional.

Must not know: modules and parameters, the compiler.
Start reading: activation.py, then loss.py.
"""

from tracejit.core.missing import missing_names
from tracejit.functional import (
    activation,
    attention,
    convolution,
    ctc,
    fractional,
    layer,
    loss,
    normalisation,
    padding,
    recurrent,
    regularisation,
    resizing,
    sampling,
    unpooling,
)
from tracejit.functional.activation import *  # noqa: F403
from tracejit.functional.attention import *  # noqa: F403
from tracejit.functional.convolution import *  # noqa: F403
from tracejit.functional.ctc import *  # noqa: F403
from tracejit.functional.fractional import *  # noqa: F403
from tracejit.functional.layer import *  # noqa: F403
from tracejit.functional.loss import *  # noqa: F403
from tracejit.functional.normalisation import *  # noqa: F403
from tracejit.functional.padding import *  # noqa: F403
from tracejit.functional.regularisation import *  # noqa: F403
from tracejit.functional.resizing import *  # noqa: F403
from tracejit.functional.sampling import *  # noqa: F403
from tracejit.functional.unpooling import *  # noqa: F403

__all__ = [
    *activation.__all__, *attention.__all__, *convolution.__all__, *ctc.__all__, *fractional.__all__,
    *layer.__all__, *loss.__all__, *normalisation.__all__, *padding.__all__, *regularisation.__all__,
    *resizing.__all__, *sampling.__all__, *unpooling.__all__,
]  # fmt: skip

__getattr__ = missing_names(__name__)
