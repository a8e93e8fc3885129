"""Settings shared by the whole suite: one place for what JAX and hypothesis may vary."""

from __future__ import annotations

import os

import jax
from hypothesis import HealthCheck, settings

# Implicit promotion hides dtype mistakes: every mixed operation in the library must be spelled out.
jax.config.update("jax_numpy_dtype_promotion", "strict")

settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
