"""The verifier's rules on two bundles: a load and the multiplication that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from hardware.dtypes import WireDtype

from .bundle import Bundle
from .dense import LoadStationary, Matmul
from .errors import Violation
from .mx import LdWeightMx, MatmultMx
from .sparse import MatmultSparse

Program = list[Bundle | None]
L = TypeVar("L", LoadStationary, LdWeightMx)


def pair_rules(program: Program) -> Iterator[Violation]:
    """Apply the rules that need both operands of a multiplication."""
    yield from _mx_pairs(program)
    yield from _dense_pairs(program)


def _mx_pairs(program: Program) -> Iterator[Violation]:
    """Apply the rules that need both operands of a matmul to each MatmultMx and its load.

    The load is the latest one of the same row group; without one, the instruction just before.
    """
    latest: dict[int, LdWeightMx] = {}
    for index, instruction in enumerate(program):
        if isinstance(instruction, LdWeightMx):
            latest[instruction.row_group] = instruction
        if not isinstance(instruction, MatmultMx):
            continue
        before = program[index - 1] if index else None
        load = latest.get(instruction.row_group, before)
        if not isinstance(load, LdWeightMx):
            continue
        rows, cols = load.num_active_rows, load.src.containers
        sized = not load.src.shape_in_register
        if instruction.num_active_rows != rows:
            yield Violation(
                "V4.235", "num_active_rows", 0x26, instruction.num_active_rows,
                f"{rows}, as the stationary operand", "both operands have the same partitions",
                index,
            )  # fmt: skip
        if sized and instruction.num_active_cols != cols:
            yield Violation(
                "V4.236", "num_active_cols", 0x27, instruction.num_active_cols,
                f"{cols}, a quarter of the stationary extent",
                "output partitions times 4 is the stationary extent", index,
            )  # fmt: skip


def _dense_pairs(program: Program) -> Iterator[Violation]:
    """FP32 meets FP32 only, fp32r included (assertion ``d3_mm_fp32r_restrictions``)."""
    latest: dict[tuple[int, int], LoadStationary] = {}
    for index, instruction in enumerate(program):
        if isinstance(instruction, LoadStationary):
            latest[instruction.row_group, instruction.col_group] = instruction
        if not isinstance(instruction, (Matmul, MatmultSparse)):
            continue
        before = program[index - 1] if index else None
        load = latest.get((instruction.row_group, instruction.col_group), before)
        if not isinstance(load, LoadStationary):
            continue
        wide = WireDtype.FP32
        if (instruction.dtype == wide) != (load.dtype == wide):
            yield Violation(
                "verifier.fp32_mix", "dtype", 0x20, instruction.dtype.name,
                f"{load.dtype.name}, as the stationary operand",
                "FP32 does not mix with narrower types", index,
            )  # fmt: skip
