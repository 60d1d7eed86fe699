"""The programs that made the demo model of tapeline.demo, and the text that it learned."""
