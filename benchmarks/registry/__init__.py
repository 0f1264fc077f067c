"""The registry: frozen cases x phases, each measured in a process of its own."""
