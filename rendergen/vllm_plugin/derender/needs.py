"""What of vLLM derender in a stream stands on."""

from __future__ import annotations

from rendergen.vllm_plugin.internals import Need

NEEDS: tuple[Need, ...] = ()
