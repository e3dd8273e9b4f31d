"""From a graph to the steps of a program: values in memory, fused nests, products, chunks.  It knows no machine."""
