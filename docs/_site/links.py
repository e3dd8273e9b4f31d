"""Links from names to the reference: from code in text (`nn.Linear`, `tracejit.compile()`), and from types in signatures.

In text a name needs no markup: code that is a documented name, with or without `tracejit.` (`tj.`) in front, becomes a link.  Types in
signatures are written as in the source (`Tensor`, `np.ndarray`, `Sequence[int]`), so their modules are looked for; what is not documented
stays text.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

_NAME = re.compile(r"@?(?:tj\.)?([A-Za-z_]\w*(?:\.\w+)+)(?:\(\))?")


def link_code(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Make code that is a documented name a link."""
    objects = app.env.domains["py"].data["objects"]
    for code in list(doctree.findall(nodes.literal)):
        text = code.astext()
        found = _NAME.fullmatch(text)
        if found is None or isinstance(code.parent, nodes.reference | nodes.title):
            continue
        name = found[1] if found[1] in objects else f"tracejit.{found[1]}"
        entry = objects.get(name)
        if entry is not None and not _is_within(code, entry.node_id):
            link = make_refnode(app.builder, page, entry.docname, entry.node_id, code.deepcopy(), name)
            code.replace_self(link)


def _is_within(node: Any, name: str) -> bool:
    """Whether the node is part of the description that a link would lead to."""
    while node is not None:
        if isinstance(node, addnodes.desc) and any(
            name in signature.get("ids", ()) for signature in node.findall(addnodes.desc_signature)
        ):
            return True
        node = node.parent
    return False


def name_types(app: Sphinx, doctree: nodes.document) -> None:
    """Write the names of types in signatures as intersphinx knows them, and not to be looked for in the module of the page."""
    for signature in doctree.findall(addnodes.desc_signature):
        for node in signature.findall(addnodes.pending_xref):
            node["py:module"] = node["py:class"] = None
            if node.hasattr("refspecific"):
                del node["refspecific"]
            if node["reftarget"].startswith("np."):
                node["reftarget"] = f"numpy.{node['reftarget'][3:]}"


def resolve_type(app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element) -> Any:
    """A link to a type of the library that a signature names; the text alone for any other type."""
    if node.get("refdomain") != "py" or node.get("reftype") not in ("class", "obj"):
        return None
    objects = env.domains["py"].data["objects"]
    last = node["reftarget"].rpartition(".")[2]
    for module in ("tracejit", "tracejit.nn", "tracejit.optim", "tracejit.distributions", "tracejit.inference"):
        entry = objects.get(f"{module}.{last}")
        if entry is not None and entry.objtype == "class":
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, f"{module}.{last}")
    return content


def setup(app: Sphinx) -> None:
    """Connect to Sphinx."""
    app.connect("doctree-resolved", link_code)
    app.connect("doctree-read", name_types)
    app.connect("missing-reference", resolve_type, priority=900)
