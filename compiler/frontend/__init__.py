"""From ONNX bytes nobody vouches for to a checked, normalised Relax module.

`load_model` checks, `import_model` checks and imports. Importing this package imports no TVM.
"""

from compiler.frontend.limits import Limits
from compiler.frontend.load import Model, load_model
from compiler.frontend.model_import import Imported, Port, import_model, setup_inputs

__all__ = ["Imported", "Limits", "Model", "Port", "import_model", "load_model", "setup_inputs"]
