"""Dot products in a declared order, with every rounding point written out.

Source: D23, D23a, D23f.  One output at a time; no shortcut is taken anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mxref.errors import PolicyError, ShapeError
from mxref.formats import FormatSpec
from mxref.oracle.arithmetic import (
    Arithmetic,
    Odd,
    Term,
    bits_of,
    exact_add,
    exact_multiply,
    lowest_bit,
    term_of,
)
from mxref.oracle.block import scaled_value
from mxref.oracle.values import Value, decode, from_float32_bits
from mxref.policy import Accumulate, NumericPolicy, Order, Products


@dataclass(frozen=True)
class Line:
    """One row of the left or one column of the right operand, scaled, in counts of ``2**unit``."""

    terms: tuple[Term, ...]
    unit: int
    scaled: bool


def operand_line(
    values: Sequence[Value], *, scaled: bool, policy: NumericPolicy, order: Accumulate
) -> Line:
    """Make a line from exactly scaled values.

    Neuron profiles round every scaled operand to float32 before the product (D23a); BLOCK has no
    products to round, so it takes the exact values under every profile.
    """
    lows = [low for v in values if (low := lowest_bit(v)) is not None]
    unit = min(lows, default=0)
    terms = tuple(term_of(v, unit) for v in values)
    if scaled and policy.products is Products.OPERANDS and order.order is not Order.BLOCK:
        arithmetic = Arithmetic(unit)
        terms = tuple(arithmetic.round(t) if isinstance(t, int) and t else t for t in terms)
    return Line(terms, unit, scaled)


def scaled_values(
    codes: Sequence[int],
    scales: Sequence[int] | None,
    fmt: FormatSpec,
    policy: NumericPolicy,
    block: int,
) -> list[Value]:
    """Decode and scale, exactly; element k has scale ``k // block``."""
    if scales is None:
        return [decode(code, fmt) for code in codes]
    wanted = -(-len(codes) // block)
    if len(scales) != wanted:
        raise ShapeError("scales", len(scales), f"{wanted} for {len(codes)} elements")
    return [scaled_value(code, scales[k // block], fmt, policy) for k, code in enumerate(codes)]


def dot_lines(
    a: Line,
    b: Line,
    order: Accumulate,
    start: Value | None = None,
    init: Value | None = None,
    block: int = 32,
) -> int:
    """One output from two prepared lines; see :func:`dot`."""
    if len(a.terms) != len(b.terms) or not a.terms:
        raise ShapeError("k", (len(a.terms), len(b.terms)), "equal and at least 1")
    if order.order is Order.C_FIRST and init is not None:
        if start is not None:
            raise PolicyError("init", "given with start", "only one of them, with C_FIRST")
        start, init = init, None
    unit = a.unit + b.unit
    for extra in (start, init):
        low = None if extra is None else lowest_bit(extra)
        unit = unit if low is None else min(unit, low)
    shift = a.unit + b.unit - unit
    exact = [p << shift if isinstance(p, int) else p for p in map(exact_multiply, a.terms, b.terms)]
    arithmetic = Arithmetic(unit)
    acc: Term = 0 if start is None else term_of(start, unit)
    match order.order:
        case Order.SEQUENTIAL | Order.C_FIRST:
            acc = _sequential(_rounded(exact, arithmetic), acc, arithmetic)
        case Order.SYSTOLIC:
            acc = _systolic(_rounded(exact, arithmetic), acc, arithmetic, order)
        case Order.BLOCK:
            run = block if a.scaled or b.scaled else len(exact)
            acc = _block(exact, acc, arithmetic, run)
        case Order.BACKEND:
            raise PolicyError("accumulate", order, "an order with a definition; not BACKEND")
    if init is not None:
        acc = arithmetic.add(acc, term_of(init, unit))
    return bits_of(acc, unit)


def _rounded(products: Sequence[Term], arithmetic: Arithmetic) -> list[Term]:
    return [arithmetic.round(p) if isinstance(p, int) and p else p for p in products]


def _sequential(products: Sequence[Term], acc: Term, arithmetic: Arithmetic) -> Term:
    for x in products:
        acc = arithmetic.add(acc, x)
    return acc


def _systolic(
    products: Sequence[Term], psum: Term, arithmetic: Arithmetic, order: Accumulate
) -> Term:
    add, lanes = arithmetic.add, order.lanes
    for first in range(0, len(products), order.tile_k):
        tile = products[first : first + order.tile_k]
        acc: Term = 0
        for p in range(0, len(tile), lanes):
            row = list(tile[p : p + lanes])
            row += [0] * (lanes - len(row))
            acc = add(acc, row[0] if lanes == 1 else add(add(row[0], row[1]), add(row[2], row[3])))
        psum = add(psum, acc)
    return psum


def _block(products: Sequence[Term], acc: Term, arithmetic: Arithmetic, run: int) -> Term:
    for first in range(0, len(products), run):
        total: Term = 0
        for x in products[first : first + run]:
            total = exact_add(total, x)
        acc = arithmetic.add(acc, arithmetic.round(total) if isinstance(total, int) else total)
    return acc


def dot(
    a_codes: Sequence[int],
    a_scales: Sequence[int] | None,
    b_codes: Sequence[int],
    b_scales: Sequence[int] | None,
    a_fmt: FormatSpec,
    b_fmt: FormatSpec,
    policy: NumericPolicy,
    order: Accumulate,
    start: int | None = None,
    init: int | None = None,
    block: int = 32,
) -> int:
    """One dot product.

    Args:
      a_codes: codes of the left row, k ascending.
      a_scales: its E8M0 codes, one per ``block`` elements; ``None`` for a plain operand.
      b_codes: codes of the right column.
      b_scales: as ``a_scales``.
      a_fmt: format of ``a_codes``; a wide format for a plain operand.
      b_fmt: format of ``b_codes``.
      policy: meaning of scale codes, and where products are rounded.
      order: any order but BACKEND.
      start: float32 word the accumulator (SYSTOLIC: the partial sum) starts from; +0 by default.
      init: float32 word added last in one addition, except C_FIRST, where it is the start.
      block: elements per scale.

    Returns:
      The float32 word; NaN is canonical.

    Exactness:
      Exact by definition.
    """
    a = operand_line(
        scaled_values(a_codes, a_scales, a_fmt, policy, block),
        scaled=a_scales is not None,
        policy=policy,
        order=order,
    )
    b = operand_line(
        scaled_values(b_codes, b_scales, b_fmt, policy, block),
        scaled=b_scales is not None,
        policy=policy,
        order=order,
    )
    words = (None if w is None else from_float32_bits(w) for w in (start, init))
    return dot_lines(a, b, order, *words, block=block)


def matmul(
    a_codes: Sequence[Sequence[int]],
    a_scales: Sequence[Sequence[int]] | None,
    b_codes: Sequence[Sequence[int]],
    b_scales: Sequence[Sequence[int]] | None,
    a_fmt: FormatSpec,
    b_fmt: FormatSpec,
    policy: NumericPolicy,
    order: Accumulate,
    start: Sequence[Sequence[int]] | None = None,
    init: Sequence[Sequence[int]] | None = None,
    block: int = 32,
) -> list[list[int]]:
    """Every output of a matrix product; shapes as in ``lhs @ rhs``.

    Args:
      a_codes: ``[M][K]`` codes.
      a_scales: ``[M][ceil(K / block)]`` E8M0 codes, or ``None``.
      b_codes: ``[K][N]`` codes.
      b_scales: ``[ceil(K / block)][N]`` E8M0 codes, or ``None``.
      a_fmt: format of the left codes.
      b_fmt: format of the right codes.
      policy: as in :func:`dot`.
      order: as in :func:`dot`.
      start: ``[M][N]`` float32 words, or ``None``.
      init: ``[M][N]`` float32 words, or ``None``.
      block: elements per scale.

    Returns:
      ``[M][N]`` float32 words.

    Exactness:
      Exact by definition.
    """

    def line(codes: Sequence[int], scales: Sequence[int] | None, fmt: FormatSpec) -> Line:
        values = scaled_values(codes, scales, fmt, policy, block)
        return operand_line(values, scaled=scales is not None, policy=policy, order=order)

    rows = [
        line(codes, None if a_scales is None else a_scales[m], a_fmt)
        for m, codes in enumerate(a_codes)
    ]
    b_columns = [list(column) for column in zip(*b_codes, strict=True)]
    b_scale_columns = None if b_scales is None else [list(c) for c in zip(*b_scales, strict=True)]
    columns = [
        line(codes, None if b_scale_columns is None else b_scale_columns[n], b_fmt)
        for n, codes in enumerate(b_columns)
    ]

    def word(grid: Sequence[Sequence[int]] | None, m: int, n: int) -> Value | None:
        return None if grid is None else from_float32_bits(grid[m][n])

    return [
        [
            dot_lines(row, column, order, word(start, m, n), word(init, m, n), block)
            for n, column in enumerate(columns)
        ]
        for m, row in enumerate(rows)
    ]


__all__ = ["Line", "Odd", "dot", "dot_lines", "matmul", "operand_line", "scaled_values"]
