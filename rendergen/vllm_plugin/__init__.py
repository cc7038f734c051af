"""An endpoint plugin for vLLM: payloads as frames, checked before the engine sees them, and derendered in a stream.

Nothing here imports vLLM before `plugin.RendergenPlugin` has been made, which checks that all it uses is there.
"""
