"""The style sheet and the script of a report's page (page.py): constants, which know only its classes and ids.

The script opens what a link leads to, and all parts at once where the reader asks for it."""

from __future__ import annotations

from typing import Final

__all__ = ["SCRIPT", "STYLE"]

STYLE: Final = """
:root { color-scheme: light dark; --text: #1f2328; --soft: #59636e; --back: #ffffff; --panel: #f6f8fa;
  --line: #d1d9e0; --good: #1a7f37; --goodback: #dafbe1; --side: #9a6700; --sideback: #fff8c5; --bad: #cf222e;
  --badback: #ffebe9; --link: #0969da; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --soft: #9198a1; --back: #0d1117; --panel: #151b23; --line: #3d444d; --good: #3fb950;
    --goodback: #12261e; --side: #d29922; --sideback: #272115; --bad: #f85149; --badback: #25171c; --link: #4493f8; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 24px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 22px; margin: 0 0 8px; }
h2 { font-size: 18px; margin: 32px 0 8px; border-bottom: 1px solid var(--line); padding-bottom: 4px; }
h3 { font-size: 15px; margin: 16px 0 6px; }
p { margin: 6px 0; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
code, pre, .code { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.lead { font-size: 18px; }
.soft { color: var(--soft); }
.todo { border-left: 3px solid var(--link); padding: 4px 12px; background: var(--panel); }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 8px 14px;
  min-width: 110px; }
.card b { display: block; font-size: 20px; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--soft); }
td, th { padding: 2px 8px; vertical-align: top; }
.grid td, .grid th { border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.k { white-space: nowrap; }
.source { border: 1px solid var(--line); border-radius: 6px; overflow-x: auto; margin-bottom: 16px; }
.source td { border: 0; }
.source td.n { color: var(--soft); width: 1%; user-select: none; }
.source td.t { white-space: pre; width: 50%; }
.source td.w { font-size: 13px; }
tr.good td { background: var(--goodback); }
tr.side td { background: var(--sideback); }
tr.bad td { background: var(--badback); }
tr:target td { outline: 2px solid var(--link); outline-offset: -2px; }
.good b { color: var(--good); }
.side b { color: var(--side); }
.bad b { color: var(--bad); }
details { margin: 4px 0; }
summary { cursor: pointer; }
.box { border: 1px solid var(--line); border-radius: 6px; padding: 6px 12px; margin: 8px 0; }
.tree, .wide { overflow-x: auto; }
h1, h3, p, li { overflow-wrap: anywhere; }
.tree ul { list-style: none; margin: 0; padding-left: 22px; border-left: 1px solid var(--line); }
.tree > ul { padding-left: 0; border: 0; }
.tree li { margin: 4px 0; }
.value { background: var(--panel); border: 1px solid var(--line); border-radius: 4px; padding: 0 4px;
  overflow-wrap: anywhere; }
.graph { overflow-x: auto; }
.graph td.t { white-space: pre; }
.chip { display: inline-block; min-width: 26px; text-align: center; border-radius: 4px; color: #fff; font-size: 12px;
  padding: 0 4px; }
.c0 { background: #0969da; }
.c1 { background: #8250df; }
.c2 { background: #1a7f37; }
.c3 { background: #bc4c00; }
.c4 { background: #bf3989; }
.c5 { background: #4d2d00; }
.c6 { background: #0e7490; }
.c7 { background: #57606a; }
.bar { display: inline-block; height: 9px; background: var(--link); border-radius: 2px; vertical-align: middle;
  margin-right: 6px; }
.legend span { padding: 1px 8px; border-radius: 4px; margin-right: 8px; font-size: 13px; }
button { font: inherit; font-size: 13px; padding: 2px 10px; }
.short { border: 1px solid #8884; border-radius: 6px; padding: 8px 14px; max-width: 900px; }
@media print {
  details > * { display: block; }
}
"""

SCRIPT: Final = """
function reveal() {
  const found = location.hash && document.getElementById(location.hash.slice(1));
  for (let part = found; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (found) found.scrollIntoView({ block: found.tagName === "DETAILS" ? "start" : "center" });
}
addEventListener("hashchange", reveal);
addEventListener("load", reveal);
document.getElementById("all").addEventListener("click", event => {
  const open = event.target.textContent === "Open all";
  document.querySelectorAll("details").forEach(part => { part.open = open; });
  event.target.textContent = open ? "Close all" : "Open all";
});
"""
