"""The main job on real tensors, with three roads to the same bits.

One hidden layer of a digit classifier (:mod:`mxref.data`) is multiplied in MXFP8 and in MXFP4.  The
FP8 program carries bfloat16 operands and quantizes them itself with QuantizeMx bundles; the FP4
program carries codes and scales.  Each is written to a file, read back, decoded, checked and run
from its bytes, and compared bit for bit with the direct kernel and with the oracle's executor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import encoding
from mxref.block import quantize
from mxref.data import digits
from mxref.fidelity import Fidelity, reference
from mxref.formats import E2M1FN, E4M3FN, FormatSpec
from mxref.lower import lower_matmul
from mxref.machine import run
from mxref.matmul import matmul
from mxref.policy import NEURON_2_24, OCP, NumericPolicy
from mxref.program import Program
from mxref.second_opinion import second_opinion

Report = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One column of the demo: an element format and who quantizes."""

    name: str
    format: FormatSpec
    policy: NumericPolicy
    on_device: bool


@dataclass(frozen=True)
class Result:
    """What happened to one job.

    Attributes:
      job: which one.
      mnemonics: bundles by mnemonic.
      code_bytes: bytes of bundles.
      file: the program file.
      file_bytes: its size.
      violations: broken rules at level ``wire``, as text.
      bits: output bits compared on each road.
      run_equal: bits equal between the program run from bytes and the direct kernel.
      oracle_equal: bits equal between the oracle's executor and the direct kernel.
      fidelity: error of the output against float64.
      correct: digits read right out of ``digits``.
      digits: how many digits there are.
    """

    job: Job
    mnemonics: dict[str, int]
    code_bytes: int
    file: Path
    file_bytes: int
    violations: tuple[str, ...]
    bits: int
    run_equal: int
    oracle_equal: int
    fidelity: Fidelity
    correct: int
    digits: int

    @property
    def passed(self) -> bool:
        """Whether every bit agrees on every road and no rule is broken."""
        return self.run_equal == self.oracle_equal == self.bits and not self.violations


JOBS = (
    Job("MXFP8", E4M3FN, NEURON_2_24, on_device=True),
    Job("MXFP4", E2M1FN, OCP, on_device=False),
)


@cache
def programs() -> dict[str, Program]:
    """The two demo programs, by name."""
    return {job.name: lower(job) for job in JOBS}


def operands() -> tuple[np.ndarray, np.ndarray]:
    """Activations and weights as bfloat16; the cast loses nothing."""
    data = digits()
    x, w = (jnp.asarray(a, jnp.bfloat16) for a in (data.activations, data.weights))
    return np.asarray(x), np.asarray(w)


def lower(job: Job) -> Program:
    """Lower one job: arrays when the device quantizes, codes and scales otherwise."""
    x, w = operands()
    if job.on_device:
        return lower_matmul(x, w, job.format, policy=job.policy)
    return lower_matmul(
        quantize(x, job.format, policy=job.policy),
        quantize(w, job.format, axis=-2, policy=job.policy),
    )


def direct(job: Job, program: Program) -> np.ndarray:
    """The same product without any bytes, in the program's order."""
    x, w = operands()
    product = matmul(
        quantize(x, job.format, policy=job.policy),
        quantize(w, job.format, axis=-2, policy=job.policy),
        accumulate=program.order,
    )
    return np.asarray(product)


def evaluate(job: Job, directory: Path, report: Report = lambda step: None) -> Result:
    """Do the whole job once.

    Args:
      job: an element of :data:`JOBS`.
      directory: where the program file goes.
      report: called with one line before each step.
    """
    data = digits()
    report("quantizing and lowering")
    program = programs()[job.name]
    file = directory / f"demo-{job.name.lower()}.mxp"
    report("writing the program file and reading it back")
    program.save(file)
    program = Program.load(file)
    report("decoding and checking")
    instructions = program.instructions()
    violations = tuple(map(str, encoding.check(program.bytes(), program.arch)))
    report("running the bytes")
    (name,) = program.outputs
    ran = np.asarray(run(program).outputs[name])
    report("running the direct kernel")
    want = direct(job, program)
    report("asking the oracle's executor")
    opinion = second_opinion(program)[name]
    exact = reference(data.activations, data.weights)
    return Result(
        job=job,
        mnemonics=dict(Counter(i.mnemonic for i in instructions)),
        code_bytes=len(program.bytes()),
        file=file,
        file_bytes=file.stat().st_size,
        violations=violations,
        bits=32 * want.size,
        run_equal=_equal_bits(ran.view(np.uint32), want.view(np.uint32)),
        oracle_equal=_equal_bits(opinion, want.view(np.uint32)),
        fidelity=Fidelity.of(ran, exact),
        correct=data.correct(ran),
        digits=len(data.labels),
    )


def _equal_bits(got: np.ndarray, want: np.ndarray) -> int:
    return 32 * want.size - int(np.bitwise_count(got ^ want).sum())
