"""Texts that the real model embeds."""

TEXTS = (
    "A cat sits on the mat.",
    "A feline rests on a rug.",
    "The stock market fell today.",
    "Why?",
    "Der Zug nach Köln hat Verspätung.",
    "MIXED Case, punctuation!!! and numbers 3.14159",
    "日本語の文章です。",
    "An antidisestablishmentarianist floccinaucinihilipilification",
    "Attention computes, for each token, a weighted mean of the values of all tokens, with weights that come from the "
    "agreement of its query with their keys; an encoder lets every token see every other, on both of its sides.",
)
