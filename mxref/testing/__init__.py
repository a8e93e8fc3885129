"""Comparators and strategies for tests, ours and yours.

``mxref.testing.strategies`` needs hypothesis, so it is imported only when it is named.
"""

from __future__ import annotations

from mxref.testing.compare import (
    Difference as Difference,
)
from mxref.testing.compare import (
    assert_bits_equal as assert_bits_equal,
)
from mxref.testing.compare import (
    first_difference as first_difference,
)
