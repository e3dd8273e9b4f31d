"""What rewrites and renderings for a machine must know of its vectors.  Knows no rendering."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """Vectors of the machine: bits of a register, whether masked memory accesses are cheap for every element size, whether an
    instruction multiplies by powers of two (rounding once), whether one that accesses the elements of a vector at positions of their own
    is faster than accessing them one by one."""

    bits: int = 256
    masked: bool = False
    scales: bool = False
    gathers: bool = True

    def lanes(self, itemsize: int) -> int:
        return max(2, self.bits // (8 * itemsize))
