"""The measured programs: one argument and one line of output, both JSON (``_measure.serve``)."""
