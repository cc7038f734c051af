"""Payloads that were tampered with, sent to a real engine: each must be refused, or answered as its pixels deserve."""
