"""The parts of the pytest plugin. None of them imports torch; the provers do, as processes."""
