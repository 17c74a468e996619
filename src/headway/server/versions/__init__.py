"""Versions of the configuration: proposed, tried, promoted and taken back while serving."""
