"""Kafka's quota arithmetic: sampled rates, throttle times, entities, the eight levels. Pure."""
