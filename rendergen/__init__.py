"""rendergen: a vision-language model served from CPU render pods and GPU generate pods."""

__version__ = "0.1.0"
