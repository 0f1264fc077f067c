"""Workloads: what a training step computes and communicates, as a graph of tasks."""
