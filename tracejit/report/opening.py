"""What every report about a compiled function begins with: one sentence that says how its calls run, and what the user can do.

The sentence is for somebody who has read nothing: plain words, one full stop, and at most `LONGEST` characters.  A cause that does not fit
is shortened; the advice and the list of reasons have it in full.

Must not know: in which form a report shows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tracejit.capture.reasons import Reason
from tracejit.config import config
from tracejit.report.account import Account
from tracejit.report.divergences import Divergence
from tracejit.report.performance import COMPILE_ONCE
from tracejit.report.phrases import counted, line_named

__all__ = ["LONGEST", "advice", "advice_for", "opening", "varies_too_much"]

LONGEST: Final = 160
"""Characters that the sentence has at most."""

_NAME: Final = 40  # characters of a name
_END: Final = re.compile(r"([.!?])\s+")  # the end of a sentence before another one
_PYTHON: Final = "ordinary Python"
_NO_GAIN: Final = "choosing the program for a call took longer than the program saved"
_PLAIN: Final = {  # reasons whose message is no clause, or is one for people who know the library; `{}` is the message
    "no_source": "there is {}",
    "too_many_paths": "its calls differ in more ways than are kept",
    "many_sizes": "its arguments come in very many sizes",
    "outlined_loop": "the steps of a loop differ too much for one program",
    "divided_step": "the steps of a loop differ too much for one program",
}
_PASSING: Final = ("compiling",)  # reasons that are no longer true when the program is there


def opening(account: Account) -> str:
    """How the calls run, in one sentence."""
    return next(text for text in _attempts(account) if _fits(text))


def advice(account: Account) -> list[str]:
    """What the user can do so that more calls run compiled, the most effective first; [] where there is nothing to do."""
    stats, divergence = account.stats, account.divergence
    if not config.enabled:
        return ["Unset TRACEJIT_DISABLE, or set config.enabled to True."]
    if not stats.calls:
        return []
    found = []
    if account.compiling and not account.paths:
        found.append("Wait, or call warm_up() first: it returns when everything is compiled.")
    if _never_recorded(account):
        found.append(f"{COMPILE_ONCE}.")
    if divergence is not None and varies_too_much(account):
        values = f"{counted(len(divergence.values), 'value')} ({divergence.values_text()})"
        found.append(f"{divergence.remedy()}: {_varying(divergence, with_text=True)} took {values}.")
    elif 2 * stats.direct_calls > stats.calls and account.paths:
        found.append(
            "Pass what varies as tensors, or remove the decorator: the function may be too small, or too varied, to gain."
        )
    if account.pieces and not account.parts and not account.calls_compiled:
        found.append("Write the lambdas, generators and comprehensions in it as functions, which can be compiled alone.")
    for one in account.with_parts():
        # pieces part forward and backward passes, which is not the user's doing
        mine = [reason for reason in one.reasons if one is account or reason.code != "outside_graph"]
        found += [advice_for(reason) for reason in sorted(mine, key=lambda reason: -one.reasons[reason])]
    return list(dict.fromkeys(filter(None, found)))


def advice_for(reason: Reason) -> str:
    """What to do about a reason, and where; "" if the next recording no longer has it by itself."""
    if reason.remedy.startswith("Nothing"):
        return ""
    location = line_named(reason.where)
    return f"{reason.remedy}{f' ({location})' if location else ''}."


def _attempts(account: Account) -> Iterator[str]:
    """The sentence, with causes told shorter and shorter."""
    stats = account.stats
    served, others, name = stats.compiled_calls, stats.eager_calls, _subject(account.name)
    calls = served + others  # without those in pieces
    if not config.enabled:
        yield f"{name} runs as {_PYTHON}, because compilation is turned off."
    elif not stats.calls:
        yield f"{name} has not been called yet."
    elif account.pieces:
        yield f"{name} {_pieces(account)}."
    elif account.compiling and not account.paths:
        yield f"{name} is being compiled in the background, and its calls run as {_PYTHON} meanwhile."
    elif not served:
        if _is_ready(account):
            yield f"{name} is compiled now: its calls so far ran as {_PYTHON} to be recorded, and calls like them will run compiled."
        for cause in _causes(account):
            yield f"{name} has run as {_PYTHON} in every call so far, because {cause}."
        yield f"{name} has run as {_PYTHON} in every call so far."
    elif not others:
        yield f"{name} runs compiled: all {counted(calls, 'call')} did."
    elif others <= stats.traces and not account.reasons and not varies_too_much(account):
        rest = "the first" if others == 1 else f"{others:,}"
        yield f"{name} runs compiled: {served:,} of {counted(calls, 'call')} did, and {rest} ran as {_PYTHON} to be recorded."
    else:
        many = 2 * served >= calls
        rest = f"{others:,} of {calls:,} ran as {_PYTHON}"
        told = f"{name} runs compiled in most calls: {rest}" if many else f"{name} runs compiled in few calls: {rest}"
        for cause in _causes(account):
            yield f"{told}, because {cause}."
        yield f"{told}."


def _subject(name: str) -> str:
    """The name of a function as the subject of a sentence: on one line, without the end of a sentence, not too long."""
    plain = _END.sub(r"\1", " ".join(name.split())).rpartition("<locals>.")[2].rstrip(".!?") or "the function"
    if len(plain) > _NAME:
        plain = f"...{plain[3 - _NAME :].lstrip()}"
    return f"{plain}," if ", " in plain else plain  # "f, a step of line 3,"


def _fits(text: str) -> bool:
    return len(text) <= LONGEST and len(text.splitlines()) == 1 and _END.search(text) is None


def _pieces(account: Account) -> str:
    why = "because no single program fits its calls"
    if account.parts:
        return f"is {_PYTHON} around {counted(len(account.parts), 'compiled part')}, {why}"
    if account.calls_compiled:
        return f"is {_PYTHON} around calls of another compiled function, {why}"
    return f"runs as {_PYTHON}, {why} and no part of it can be compiled alone"


def _is_ready(account: Account) -> bool:
    """Whether there is a program that no call has had the chance to use: all calls were recorded, or waited for it."""
    stats = account.stats
    return bool(account.paths) and not varies_too_much(account) and stats.eager_calls - stats.early_calls <= len(account.paths)


def _never_recorded(account: Account) -> bool:
    """Whether the function is left to Python from its first call on: others of the same code have served no call."""
    return not account.stats.traces and (account.resting or account.stats.direct_calls > 0)


def varies_too_much(account: Account) -> bool:
    """Whether what recordings differ in is why calls run as Python."""
    return account.divergence is not None and (account.full or 2 * account.stats.compiled_calls < account.stats.calls)


def _causes(account: Account) -> Iterator[str]:
    """Why calls ran as Python, as what follows "because": the most important cause in full, then in fewer words."""
    stats, divergence, reasons = account.stats, account.divergence, account.reasons
    if divergence is not None and varies_too_much(account):
        varying = f"{_varying(divergence)} changes from call to call"
        yield f"{varying} ({divergence.values_text()})"
        yield varying
        yield "a value changes from call to call"
    if _never_recorded(account):
        yield "functions with the same code were compiled again and again"
    if account.paths and 2 * stats.direct_calls > stats.calls:
        yield _NO_GAIN
    if (reason := _most_frequent(reasons)) is not None:
        yield from _wordings_of(reason)
    if stats.early_calls or reasons:
        yield "it was still being compiled"
    if stats.direct_calls:
        yield _NO_GAIN
    if divergence is not None:
        yield f"{_varying(divergence)} changes"
    if account.paths:
        yield "they were unlike the calls that were recorded"


def _most_frequent(reasons: Mapping[Reason, int]) -> Reason | None:
    lasting = [reason for reason in reasons if reason.code not in _PASSING]
    return max(lasting, key=lambda reason: reasons[reason], default=None)


def _wordings_of(reason: Reason) -> Iterator[str]:
    """A reason as what follows "because", in full, then in fewer words."""
    text = _PLAIN.get(reason.code, "{}").replace("{}", reason.message)
    line = line_named(reason.where, with_text=False)
    if line:
        yield f"{text} ({line})"
        yield f"of what {line} does"
    yield text
    yield "of the reason below"


def _varying(divergence: Divergence, with_text: bool = False) -> str:
    """What varies, and the user's line."""
    line = line_named(divergence.where, with_text)
    return f"{divergence.name}{f' ({line})' if line else ''}"
