"""All of vLLM's internals that the plugin uses, by what they are used for."""

from __future__ import annotations

from rendergen.vllm_plugin.internals import Need

NEEDS: tuple[Need, ...] = ()
