"""What writes the parts of the site that are no pages in docs/: the reference, the gallery, the project's own files, links.

Must not know: Sphinx's settings, which are in conf.py.
Start reading: reference.py (pages from docstrings).
"""
