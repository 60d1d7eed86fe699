"""Pictures and sound as what models read."""
