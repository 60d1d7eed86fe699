"""Measured peers that our own interpreter does not have: each is a program for the interpreter that has them."""
