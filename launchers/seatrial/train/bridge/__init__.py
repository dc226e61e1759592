"""Megatron-Bridge's loop in the ranks: its recipe by name, our overrides, what must hold, and what watches it.

Written against Megatron-Bridge 0.5.1. Imported only where a plan names a Bridge recipe.
"""
