"""Properties have the same examples every time, but where `make random` asks for others; no wall clock bounds them."""

from hypothesis import HealthCheck, settings

from tests.property.examples import ALL

_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _ANY_MACHINE, derandomize=True)
settings.register_profile("random", _ANY_MACHINE, max_examples=ALL, print_blob=True)
settings.load_profile("same")
