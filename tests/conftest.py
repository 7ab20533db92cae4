"""Every property is tried on 300 examples, the same ones each time."""

from hypothesis import settings

settings.register_profile("suite", max_examples=300, deadline=None, derandomize=True, database=None)
settings.load_profile("suite")
