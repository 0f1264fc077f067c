"""Exploration of a space of designs: shapes, blocks, parallelism, placement, bandwidths."""
