"""Providers: what nodes come from."""
