"""The code generator's back end: instructions of the IR in, one stream of bundles per engine out.

It keeps what the compiler keeps between instructions: the mode, the tile cache of stationary
weights, the queue of the deferred validator.  Sources: "Codegen Driver and the CodeGenMode
Mechanism", "Per-Engine .bin Emission".
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import TypeAlias

from hardware.arch import Arch, ArchLike, Engine

from .abstract import MatmultMxOp, QuantizeMxOp
from .bundle import Bundle, encode
from .codec import LAYOUTS
from .dense import LoadStationary
from .errors import EncodeError, LegalityError
from .legality import Level, check
from .multiply import MatmultOp, MatmultSparseOp
from .mx import LdWeightMx

Operation: TypeAlias = MatmultOp | MatmultSparseOp | MatmultMxOp | QuantizeMxOp

QUEUE_LIMIT = 10_000
"""Bundles after which the deferred validator runs by itself."""


class CodeGenMode(IntEnum):
    """What an operation is turned into, by number (D2); the bytes never depend on it."""

    COLLECT_OPCODES = 0
    """Only count the opcodes that operations need."""
    GENERATE_ISACODE = 1
    """Write bundles to the streams and queue them for the validator."""
    RUN_ISA_CHECKS = 2
    """Build the same bundles, check them at once, write nothing."""


class Emitter:
    """Turns operations into bundles.

    Attributes:
      arch: the generation to emit for.
      mode: what happens to the bundles.
      streams: the bytes written so far, one stream for each engine that has any.
      census: how many operations need each opcode; filled in mode 0.
    """

    def __init__(
        self,
        arch: ArchLike = Arch.MARIANA,
        mode: int = CodeGenMode.GENERATE_ISACODE,
        *,
        level: Level = "wire",
        cache: bool = True,
    ) -> None:
        """Start with empty streams.

        Args:
          arch: the generation to emit for.
          mode: 0, 1 or 2 (D2).
          level: the judgement that the validator makes; at level verifier an MX operation is
            judged whole.
          cache: leave out loads of weights that are in place already.

        Raises:
          EncodeError: for another mode.
        """
        arch = Arch.parse(arch)
        try:
            self.mode = CodeGenMode(mode)
        except ValueError:
            names = ", ".join(f"{m.value} ({m.name})" for m in CodeGenMode)
            raise EncodeError("Emitter", "mode", mode, names) from None
        self.arch = arch
        self.streams: dict[Engine, bytearray] = {}
        self.census: Counter[int] = Counter()
        self._level: Level = level
        self._caching = cache
        self._resident: dict[tuple[int, int], bytes] = {}
        self._queue: list[Bundle] = []
        self._checked = 0

    def emit(self, operation: Operation, sync: Mapping[str, int] | None = None) -> list[Bundle]:
        """Handle one operation as the mode says, and return its bundles.

        In mode 0 the list is empty.  A load whose weights are in its tile already is left out; the
        passes of a float32 operation always load.  A refused operation leaves no trace.

        Args:
          operation: the instruction.
          sync: fields of the synchronisation band: the first bundle waits, the last one updates.

        Raises:
          AddressError: when an address leaves its memory.
          CapabilityError: when the generation lacks what the operation needs.
          EncodeError: when a value does not fit.
          LegalityError: in mode 2 for broken rules; in mode 1 when a full queue is checked, which
            is after the bundles were written.
        """
        bundles = operation.bundles(self.arch)
        if self.mode is CodeGenMode.COLLECT_OPCODES:
            self.census.update({LAYOUTS[type(bundle)].opcode for bundle in bundles})
            return []
        resident = dict(self._resident)
        kept = _synchronised([b for b in bundles if not self._in_place(b, resident)], sync or {})
        data = [(bundle.engine, encode(bundle, self.arch)) for bundle in kept]
        if self.mode is CodeGenMode.RUN_ISA_CHECKS:
            self._judge(operation, kept)
        self._resident = resident
        if self.mode is CodeGenMode.GENERATE_ISACODE:
            for engine, chunk in data:
                self.streams.setdefault(engine, bytearray()).extend(chunk)
            self._queue += kept
            if len(self._queue) >= QUEUE_LIMIT:
                self.flush()
        return kept

    def emit_all(self, operations: Iterable[Operation]) -> list[Bundle]:
        """Handle operations in order, then run the deferred validator."""
        bundles = [bundle for operation in operations for bundle in self.emit(operation)]
        self.flush()
        return bundles

    def flush(self) -> None:
        """Run the deferred validator over everything written since it last ran.

        Raises:
          LegalityError: listing every broken rule, indices counted over all bundles written; the
            streams keep the bundles, as the compiler's do.
        """
        queue, start = self._queue, self._checked
        self._queue, self._checked = [], start + len(queue)
        found = check(queue, self.arch, self._level)
        if found:
            raise LegalityError([replace(v, index=v.index + start) for v in found])

    def invalidate(self) -> None:
        """Forget which weights are in place: their memory changes under the same address."""
        self._resident.clear()

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write each stream to ``<engine>.bin``, without framing, and return the paths."""
        room = Path(directory)
        room.mkdir(parents=True, exist_ok=True)
        paths = [room / engine.stream for engine in self.streams]
        for path, data in zip(paths, self.streams.values(), strict=True):
            path.write_bytes(data)
        return paths

    def _judge(self, operation: Operation, kept: list[Bundle]) -> None:
        whole = self._level == "verifier" and isinstance(operation, (MatmultMxOp, QuantizeMxOp))
        violations = check(operation if whole else kept, self.arch, self._level)
        if violations:
            raise LegalityError(violations)

    def _in_place(self, bundle: Bundle, resident: dict[tuple[int, int], bytes]) -> bool:
        """Say whether a bundle loads what its tile holds already; note what it loads otherwise."""
        if not isinstance(bundle, (LoadStationary, LdWeightMx)):
            return False
        # A group is a mask of quadrants, so two tiles overlap when both masks do.
        tile, data = (bundle.row_group, bundle.col_group), encode(bundle, self.arch)
        cachable = self._caching and isinstance(bundle, LoadStationary) and not bundle.fp32_mode
        if cachable and resident.get(tile) == data:
            return True
        for other in [t for t in resident if t[0] & tile[0] and t[1] & tile[1]]:
            del resident[other]
        if cachable:
            resident[tile] = data
        return False


def _synchronised(bundles: list[Bundle], sync: Mapping[str, int]) -> list[Bundle]:
    value = {name: number for name, number in sync.items() if name == "semaphore_value"}
    wait = {name: number for name, number in sync.items() if name.startswith("wait_")}
    update = {name: number for name, number in sync.items() if name.startswith("update_")}
    if len(wait) + len(update) + len(value) != len(sync):
        allowed = "wait_mode, wait_semaphore, update_mode, update_semaphore, semaphore_value"
        raise EncodeError("emit", "sync", ", ".join(sync), allowed)
    if wait:
        bundles[0] = replace(bundles[0], **wait, **value)
    if update:
        bundles[-1] = replace(bundles[-1], **update, **value)
    return bundles
