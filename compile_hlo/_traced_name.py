"""Names of entry points with traces."""


def traced_name(entry_point: str) -> str:
    """Returns the name of the function that is an entry point with traces of the tensors of kernels."""
    return f"kernels.{entry_point}"
