"""Questions that the real model answers."""

STEPS = 200
PROMPTS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain what a hash table is to a child.",
    "List five uses of a paper clip.",
    "Who wrote Pride and Prejudice, and when?",
    "Translate 'good morning' into Spanish, French and Italian.",
    "What is 17 times 23?",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "Write a Python function that reverses a string.",
    "What are the planets of the solar system, in order?",
    "Summarise the story of Romeo and Juliet in three sentences.",
    "How do vaccines work?",
    "Suggest a name for a small bakery.",
    "What is the difference between weather and climate?",
    "Tell me a joke about a computer.",
    "How many days are in a leap year?",
    "Describe a rainy day in a big city.",
    "What should I pack for a week in the mountains?",
    "Write a short letter to thank a teacher.",
)
