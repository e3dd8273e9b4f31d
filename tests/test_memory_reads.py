"""Reading memory at numbers that may be no addresses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tracejit.cpython import memory_reads
from tracejit.cpython.memory_reads import CheckedMemory, Unreadable, word


def test_words_are_those_that_a_plain_read_finds() -> None:
    key = bytes(range(16))
    position = id(key) + bytes.__basicsize__ - 1
    with CheckedMemory() as memory:
        assert memory.word(position) == word(position) == int.from_bytes(key[:8], sys.byteorder)
        assert memory.bytes(position + 3, 5) == key[3:8]


@pytest.mark.skipif(not os.path.exists(memory_reads._MEMORY), reason="this system shows no process its memory")
def test_what_is_no_address_raises_and_the_process_goes_on() -> None:
    with CheckedMemory() as memory:
        assert memory.is_safe
        for number in (0, 8, 1 << 46, 1 << 60, 1 << 63, 1 << 70, -8):
            with pytest.raises(Unreadable, match="8 bytes at"):
                memory.word(number)
        before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) == before - 1


@pytest.mark.parametrize("holds", [None, b"", bytes(64)])
def test_where_the_system_shows_no_memory_reads_are_plain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, holds: bytes | None
) -> None:
    file = tmp_path / "memory"
    if holds is not None:
        file.write_bytes(holds)
    monkeypatch.setattr(memory_reads, "_MEMORY", str(file))
    with CheckedMemory() as memory:
        assert not memory.is_safe and memory.word(id(None) + 8) == id(type(None))
