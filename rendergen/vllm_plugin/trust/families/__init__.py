"""For which models it can be proven, from an item's tensors alone, how many embeddings the item will yield."""

from __future__ import annotations

from rendergen.vllm_plugin.trust.families.choice import image_family
from rendergen.vllm_plugin.trust.families.family import Family, Proven

__all__ = ["Family", "Proven", "image_family"]
