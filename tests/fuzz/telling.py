"""What a function tells beside its program: prints, a logger and a file of the world, warnings; and numbers that leave, kept in the world.

Who is told what, and in which order, is part of what is compared: the logger and the file write to one stream of the world.
"""

from __future__ import annotations

from tests.fuzz.expressions import number
from tests.fuzz.keeping import furnish_keepers
from tests.fuzz.leaving import taken
from tests.fuzz.maker import Maker

__all__ = ["kept", "told"]

TRIES = 5
STREAM = """
import csv, datetime, hashlib, io, json, logging, os, queue, struct, threading
{s} = io.StringIO()
{s}writer = csv.writer({s})
{s}queue = queue.Queue()
{s}lock = threading.Lock()
{s}log = logging.Logger('{s}')
{s}handler = logging.StreamHandler({s})
{s}handler.setFormatter(logging.Formatter('%(levelname)s %(lineno)d %(funcName)s %(message)s'))
{s}log.addHandler({s}handler)
{s}log.setLevel(logging.INFO)
"""
SAID = (
    "{n}", "{t}", "{t}, {n}", "{x}", "{x}, {t}", "[{x}, {t}]", "({t}, [{n}])", "{'a': {t}, 'x': {x}}", "f'{{t}:.3f}'",
    "f'{{t}} {{n}}'", "'%s %s' % ({t}, {n})", "'{} and {}'.format({t}, {n})", "{x}.tolist()", "{x}.shape, {t}", "f'{{x}}'",
    "str({t})", "repr([{t}, {u}])", "{x}.detach().numpy()", "' '.join([str({t}), str({u})])", "{t} > {u}", "round({t}, 2)",
    "'here'", "{x}.sum()", "f'{{x}.max()}'", "f'{{x}.max():.2f}'", "'max %.2f' % {x}.max()",
    "[f'{v:.2f}' for v in {x}.reshape(-1).tolist()]", "{'k': [{t}, {u}]}", "*[{t}, {u}]", "f'{{t}!r:>12}'",
    "str({x}.reshape(-1).tolist())[:9]", "f'{{t}:>{len(str({n}))}}'",
)  # fmt: skip
PRINTED = (
    "print({a})", "print({a}, sep='|')", "print({a}, end=' ')", "print('a', {a}, flush=True)", "print({a}, file={s})",
    "print({a}, file={s}, end='; ')",
)  # fmt: skip
TEXTED = (
    "{s}.write(str(({a},)))", "{s}.writelines([str(({a},)), ' '])", "{s}log.info(str(({a},)))", "{s}log.info('%s', ({a},))",
    "{s}log.warning(f'{({a},)}')", "{s}log.debug(({a},))", "{s}log.log(30, '%r', ({a},))", "warnings.warn(str(({a},)))",
    "warnings.warn(f'{({a},)}', DeprecationWarning)", "warnings.warn(FutureWarning(({a},)))", "{s}.write('%s\\n' % (({a},),))",
    "{s}log.error('two %s %s', 1, ({a},))",
)  # fmt: skip
FORMATTED = (
    "{s}log.info('%.3f', {t})", "{s}log.info('%s of %s', {n}, {t})", "{s}log.info('%d', {n})",
    "{s}log.warning('%(a)s', {'a': {t}})", "{s}.write(f'{{t}:8.2f};')", "{s}log.info('%s', {x})",
)  # fmt: skip
PUT_OFF = (
    "{s}writer.writerow([{n}, {t}, 'a'])", "{s}writer.writerow(({t}, {u}))", "{s}writer.writerows([[{t}], [{n}, {u}]])",
    "{s}.write(json.dumps({'a': {t}, 'n': [{n}, {u}]}))", "json.dump([{t}, {n}], {s})", "{s}.write(json.dumps([{n}]) * 2)",
    "{s}queue.put(({n}, {t}))", "{s}queue.put({x})", "{s}queue.put([{x}, 'a'])", "{s}.write(str({s}.tell()) + ' ')",
    "with {s}lock: {s}.write(str({t}) + ' ')", "with {s}lock: {s}writer.writerow([{t}])",
    "(lambda b: (b.write(str({t})), b.write('-'), {s}.write(b.getvalue())))(io.StringIO())",
    "{s}.write(hashlib.md5(str({n}).encode()).hexdigest())", "{s}queue.put((struct.pack('<d', {t}), {t}))",
    "{s}.write(str(os.getpid() > 0))", "{s}.write(str(datetime.datetime.now().year > 2000)[:0])",
    "{s}queue.put({s}.tell())", "{s}.write(f'{{s}.tell()} {{t}} {os.path.exists(\"/nowhere\")}')",
    "[{s}.write(str(v) + ' ') for v in ({t}, {n})]", "{s}.seek({s}.tell())",
)  # fmt: skip


def furnish_streams(m: Maker) -> None:
    """A stream, and a logger that writes to it."""
    name = m.name("stream")
    if m.outside("import warnings", *[line for line in STREAM.format(s=name).split("\n") if line]):
        m.world.observed += [f"{name}.getvalue()", f"list({name}queue.queue)"]
        m.streams.append(name)
        m.for_torch = False
        m.world.changes += [
            f"{name}log.setLevel(logging.{m.pick(['DEBUG', 'WARNING', 'ERROR'])})",
            f"{name}.truncate(0)",
            f"{name}log.disabled = not {name}log.disabled",
            f"{name}handler.setFormatter(logging.Formatter('%(message)s'))",
            "warnings.simplefilter('ignore')",
            "warnings.simplefilter('error', UserWarning)",
            "warnings.simplefilter('always')",
        ]


def told(m: Maker) -> None:
    """Something is told somebody."""
    if not m.streams:
        furnish_streams(m)
    if not m.streams:
        return
    for _ in range(TRIES):
        template = str(m.pick(m.pick([PRINTED, TEXTED, FORMATTED, PUT_OFF])))
        text = filled(m, template.replace("{a}", m.pick(SAID)).replace("{s}", m.pick(m.streams)))
        if text is not None and m.emit(text):
            m.not_replayed("something is told")
            m.for_torch = False
            return


def filled(m: Maker, template: str) -> str | None:
    """A template with tensors for {x}, numbers for {n}, numbers that leave for {t} and {u}."""
    for key, make in (("{t}", taken), ("{u}", taken), ("{n}", number), ("{x}", lambda m: m.tensor() or m.floating())):
        if key in template:
            value = make(m)
            if value is None:
                return None
            template = template.replace(key, f"({value})" if key != "{x}" else value)
    return template


# -- numbers that leave, kept in the world
def kept(m: Maker) -> None:
    """A number that leaves is kept in the world."""
    if not m.keepers:
        furnish_keepers(m)
    if not m.keepers:
        return
    name, stores, _ = m.pick(m.keepers)
    text = filled(m, m.pick(stores).replace("{k}", name))
    if text is not None and m.emit(text):
        m.not_replayed("containers of outside change")
