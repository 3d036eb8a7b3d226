"""Properties have the same examples every time, but where `make random` asks for others."""

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("random", max_examples=1_000, print_blob=True)
settings.load_profile("same")
