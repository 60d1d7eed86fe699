"""Benchmarks: ``suites`` start the programs of ``jobs``, each in a fresh process, and report what they measured.

Nothing is imported here, so that a measured process imports only what it measures.
"""
