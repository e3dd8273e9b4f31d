"""The text of one LLVM function under construction."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["FunctionText"]


@dataclass(slots=True)
class FunctionText:
    """Instructions of a function, with names for their results.

    `lines` is where instructions go (loops swap it to fill their parts separately).  `declarations` maps external symbols to their
    declarations, and helpers to their definitions."""

    lines: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    count: int = 0
    block: str = "entry"

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def op(self, text: str) -> str:
        """Append an instruction with a result; returns its name."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"{name} = {text}")
        return name

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def declare(self, symbol: str, result: str, *types: str) -> None:
        """An external function or intrinsic that is called."""
        if symbol not in self.declarations:
            self.declarations[symbol] = f"declare {result} @{symbol}({', '.join(types)})"

    def call(self, symbol: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call an external function or intrinsic with (type, value) arguments."""
        self.declare(symbol, result, *[t for t, _ in arguments])
        text = f"call {result} @{symbol}({', '.join(f'{t} {v}' for t, v in arguments)})"
        if result != "void":
            return self.op(text)
        self.lines.append(text)
        return ""
