"""Draw random records from their tables, for tests and fuzzing.

Fields are drawn independently: every draw encodes, and with ``wild=0`` every single field is legal,
but rules that bind several fields may be broken.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from hardware.arch import Arch
from hardware.evidence import Evidence
from hardware.memory import PARTITIONS, PSUM_BANKS, SBUF_PARTITION_STRIDE

from .address import INDIRECT_BIT, SHAPE_REGISTER_BIT, Addr4
from .codec import rows_of
from .rows import Kind, Row

T = TypeVar("T")
_PLAIN = Row(Kind.ADDRESS, 0, 32, "", Evidence.ASSUMED, "")


def draw(
    record: type[T],
    random: Random,
    wild: float = 0.0,
    *,
    arch: Arch = Arch.MARIANA,
    gather: float = 0.0,
) -> T:
    """Return a random record.

    Args:
      record: a bundle or descriptor class.
      random: source of randomness.
      wild: probability that a field takes any value that fits instead of a legal one.
      arch: the generation whose fields are drawn; the others keep their defaults.
      gather: probability that a slot with a choice holds its gather descriptor.
    """
    values: dict[str, Any] = {}
    for row in rows_of(record, arch):
        if row.kind is Kind.RECORD and row.record is not None:
            other = bool(row.others) and random.random() < gather
            inner = row.others[0] if other else row.record
            values[row.name] = draw(inner, random, wild, arch=arch, gather=gather)
        elif row.kind not in (Kind.CONST, Kind.RESERVED):
            values[row.name] = _value(row, random, random.random() < wild)
    return record(**values)


def _value(row: Row, random: Random, wild: bool) -> Any:
    if row.kind is Kind.ADDRESS:
        return _address(row, random, wild)
    if row.enum is not None and (wild or row.legal is None):
        return random.choice(list(row.enum))
    if row.legal is not None and not wild:
        return random.choice(list(row.legal) if not isinstance(row.legal, range) else row.legal)
    return random.randint(row.lowest, row.highest)


def _address(row: Row, random: Random, wild: bool) -> Addr4:
    if row.index:
        plain = random.getrandbits(32) if wild else _address(_PLAIN, random, wild=False).word
        return Addr4(plain & ~SHAPE_REGISTER_BIT | INDIRECT_BIT)
    if wild:
        word = Addr4(random.getrandbits(32))
        return word if row.gather or not word.is_gather else Addr4(word.address)
    partition = random.randrange(PARTITIONS)
    if random.random() < 0.5:
        return Addr4.sbuf(partition, 4 * random.randrange(SBUF_PARTITION_STRIDE // 4))
    return Addr4.psum(partition, random.randrange(PSUM_BANKS), 4 * random.randrange(512))
