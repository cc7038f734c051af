"""Requests whose answers must be those of one `vllm serve`, and how two answers are compared."""
