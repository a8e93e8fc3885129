"""The machine: memories as an immutable value, and the bundles that change them."""

from .executor import run as run
from .state import State as State
from .state import TraceStep as TraceStep
